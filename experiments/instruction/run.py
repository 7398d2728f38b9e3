"""The instruction task in LIGHT: accuracy against memory, fixed spans against Expire-Span; Table 5 (experiments/instruction/run.sh).

Width 128 and three layers, where the paper has 512 and six; orders lie some 950 words back, as there.
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import sweep  # noqa: E402

CONFIG = "examples/instruction.toml"
REACH = 2048


def runs():
    data = pathlib.Path(sweep.given("LAPSE_DATA"))
    light = {"instruction.world": str(data / "light" / "complex_world_2020-09.json"), "instruction.chatter": str(data / "c4-sample.txt")}
    every = {"train.checkpoint_every": 500, "train.log_every": 100}
    short = every | {"train.updates": 5000, "train.validate_every": 500}
    long = every | {"train.updates": 20000, "train.validate_every": 2000, "train.validation_blocks": 64}
    # Enough words for some 200 executions in validation and 1,500 in the test; and the same positions for all methods.
    long |= {"instruction.valid_words": 131072, "instruction.test_words": 1_000_000}
    long |= {"model.positions": "buckets", "model.bucket_distance": REACH}
    # Spans begin at half of L: an order must still be there when its use can be learned (docs/tasks.md).
    expire = {"expire_span.max_span": REACH, "expire_span.initial_fraction": 0.5}
    fixed = lambda span: {"forgetting.method": "fixed_span", "fixed_span.max_span": span}
    methods = {
        "expire_span": expire,
        "fixed_span_2048": fixed(2048),
        "fixed_span_512": fixed(512),
        "fixed_span_128": fixed(128),
        "fixed_span_1024": fixed(1024),
        "fixed_span_256": fixed(256),
        "adaptive_span_2048": {"forgetting.method": "adaptive_span", "adaptive_span.max_span": REACH},
        # Where its spans begin at 0, as in its paper, they do not come to reach an order; so from half of L, as Expire-Span's.
        "adaptive_span_2048_from_half": {"forgetting.method": "adaptive_span", "adaptive_span.max_span": REACH, "adaptive_span.initial_fraction": 0.5},
        "compressive_2048": {"forgetting.method": "compressive", "compressive.max_span": 512, "compressive.rate": 4, "compressive.size": 1536},
    }
    named = [(f"{name}_5k-1", short | values) for name, values in methods.items()]
    named += [(f"{name}_20k-1", long | values) for name, values in methods.items()]
    named += [(f"expire_span_20k-{seed}", long | expire | {"train.seed": seed}) for seed in (2, 3)]
    for name, values in named:
        yield sweep.Run(name, CONFIG, values, files=light)
    for seed in (1, 2, 3):  # the village that comes with the program, without chatter: docs/tasks.md
        yield sweep.Run(f"village_expire_span-{seed}", CONFIG, {"train.seed": seed})
        yield sweep.Run(f"village_fixed_span_32-{seed}", CONFIG, {"train.seed": seed} | fixed(32))
        yield sweep.Run(f"village_fixed_span_128-{seed}", CONFIG, {"train.seed": seed} | fixed(128))
        # No spans, by their cost: a ramp of 32 alone, which tells fading from remembering.
        only_ramp = {"expire_span.loss": 1e-2, "expire_span.initial_fraction": 0.01}
        yield sweep.Run(f"village_only_ramp-{seed}", CONFIG, {"train.seed": seed} | only_ramp)
    for seed in (1, 2, 3):  # Table 5's methods in the village, with the same positions: whatever they hold, all tell ages apart to 512
        for name, values in {
            "expire_span_512": {},
            "adaptive_span_512": {"forgetting.method": "adaptive_span", "adaptive_span.max_span": 512, "adaptive_span.initial_fraction": 0.1},
            "compressive_512": {"forgetting.method": "compressive", "compressive.max_span": 128, "compressive.rate": 4, "compressive.size": 384},
            "fixed_span_128": fixed(128),
            "fixed_span_512": fixed(512),
        }.items():
            buckets = {"model.positions": "buckets", "model.bucket_distance": 512}
            yield sweep.Run(f"village_buckets_{name}-{seed}", CONFIG, {"train.seed": seed} | buckets | values)


def main():
    columns = {
        "executions right, %": sweep.measured("answer_accuracy", "{:.1f}", times=100),
        "perplexity": sweep.measured("ppl", "{:.3f}"),
        **sweep.MEMORY,
        "peak memory, MB": lambda result: f"{result['peak_memory'] / 1e6:.0f}",
        "ms per update": lambda result: f"{result['ms_per_update_median']:.0f}",
    }
    sweep.table(HERE, sweep.main(HERE, list(runs()), __doc__), columns)


if __name__ == "__main__":
    main()
