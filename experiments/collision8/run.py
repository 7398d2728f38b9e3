"""Object Collision where it can be learned: worlds of 8 x 8 cells, and spans that reach the answers (experiments/collision8/run.sh).

In the easy world particles meet every 62 steps, four times as often as in the paper's, so that spans are four times shorter than in Table 7.
The harder world has two colours, and spans 16 times shorter than in Tables 3 and 4.
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import sweep  # noqa: E402

CONFIG = "experiments/collision8/base.toml"
EASY = {}
HARD = {"collision.easy": False, "collision.colours": 2}


def fixed(span):
    return {"forgetting.method": "fixed_span", "fixed_span.max_span": span}


def compressive(span, pooled):
    return {"forgetting.method": "compressive", "compressive.max_span": span, "compressive.rate": 4, "compressive.size": pooled}


def adaptive(span):
    return {"forgetting.method": "adaptive_span", "adaptive_span.max_span": span, "adaptive_span.ramp": 128}


def runs():
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
