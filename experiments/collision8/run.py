"""Object Collision where it can be learned: small worlds, and spans that reach the answers (experiments/collision8/run.sh).

In worlds of 8 x 8 cells: in the easy one particles meet every 62 steps, four times as often as in the paper's, so that spans are four times
shorter than in Table 7. The harder one has two colours, and spans 16 times shorter than in Tables 3 and 4 (the fixed span 8 times). `small` is a world of 4 x 4 cells
and one colour, in which particles meet every 13 steps; spans are 32 times shorter than the paper's. All methods have the same positions,
buckets of ages as far as answers lie.
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import sweep  # noqa: E402

CONFIG = "experiments/collision8/base.toml"
EASY = {}
HARD = {"collision.easy": False, "collision.colours": 2}
SMALL = {
    "collision.easy": False, "collision.grid": 4, "collision.colours": 1, "collision.train_steps": 1_000_000, "collision.valid_steps": 16_000,
    "model.bucket_distance": 512, "train.batch": 16, "train.updates": 4000, "train.validate_every": 1000, "optimiser.warmup": 200, "optimiser.clip": 1.0,
}  # fmt: skip
SHORT_RAMP = {"expire_span.ramp": 16, "expire_span.loss": 1e-6, "expire_span.initial_fraction": 0.1}


def fixed(span):
    return {"forgetting.method": "fixed_span", "fixed_span.max_span": span}


def compressive(span, pooled):
    return {"forgetting.method": "compressive", "compressive.max_span": span, "compressive.rate": 4, "compressive.size": pooled}


def adaptive(span, ramp=128, **more):
    return {"forgetting.method": "adaptive_span", "adaptive_span.max_span": span, "adaptive_span.ramp": ramp} | more


def runs():
    for seed in (1, 2):
        for name, values in {
            "expire_span_512": {"expire_span.max_span": 512} | SHORT_RAMP,
            "fixed_span_128": fixed(128),
            "fixed_span_192": fixed(192),
            "adaptive_span_512": adaptive(512, 16, **{"adaptive_span.initial_fraction": 0.1}),
            "fixed_span_32": fixed(32),
            "fixed_span_512": fixed(512),
            "compressive_192": compressive(128, 64),  # holds 144 rows
            # Of the form that learned spans take, but not learned: two layers of 32 rows and one of 512, as many as a fixed span of 192.
            "local_global_32": {"forgetting.method": "local_global", "local_global.max_span": 512, "local_global.window": 32, "local_global.every": 3},
        }.items():
            yield sweep.Run(f"small-{name}-{seed}", CONFIG, SMALL | values | {"train.seed": seed})
    for name, values in {
        "easy-expire_span_1024": EASY | {"expire_span.max_span": 1024},
        "easy-fixed_span_256": EASY | fixed(256),
        "easy-expire_span_512": EASY | {"expire_span.max_span": 512},
        "easy-expire_span_256": EASY | {"expire_span.max_span": 256},
        "hard-expire_span_2048": HARD | {"expire_span.max_span": 2048},
        "hard-adaptive_span_1024": HARD | adaptive(1024),
        "hard-compressive_512": HARD | compressive(128, 384),
        "hard-fixed_span_128": HARD | fixed(128),
        "hard-expire_span_1024": HARD | {"expire_span.max_span": 1024},
    }.items():
        yield sweep.Run(name, CONFIG, values)


def main():
    error = {"test error, %": lambda result: f"{100 * (1 - result['evaluation']['test']['accuracy']):.1f}"}
    sweep.table(HERE, sweep.main(HERE, list(runs()), __doc__), sweep.UPDATES | error | sweep.MEMORY)


if __name__ == "__main__":
    main()
