"""The instruction task in LIGHT: accuracy against memory, fixed spans against Expire-Span; Table 5 (experiments/instruction/run.sh).

Width 128 and three layers, where the paper has 512 and six; orders lie some 950 words back, as there.
"""

import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import sweep  # noqa: E402

CONFIG = "examples/instruction.toml"
REACH = 2048


def runs():
    data = pathlib.Path(os.environ["LAPSE_DATA"])
    light = {"instruction.world": str(data / "light" / "complex_world_2020-09.json"), "instruction.chatter": str(data / "c4-sample.txt")}
    length = {"train.updates": 20000, "train.validate_every": 2000, "train.checkpoint_every": 500, "train.log_every": 100}
    # Spans begin at half of L: an order must still be there when its use can be learned (docs/tasks.md).
    expire = {"expire_span.max_span": REACH, "expire_span.initial_fraction": 0.5}
    fixed = lambda span: {"forgetting.method": "fixed_span", "fixed_span.max_span": span}
    for name, values in {
        "expire_span-1": expire | {"train.seed": 1},
        "fixed_span_2048": fixed(2048),
        "fixed_span_1024": fixed(1024),
        "fixed_span_512": fixed(512),
        "fixed_span_256": fixed(256),
        "fixed_span_128": fixed(128),
        "adaptive_span_2048": {"forgetting.method": "adaptive_span", "adaptive_span.max_span": REACH},
        "compressive_2048": {"forgetting.method": "compressive", "compressive.max_span": 512, "compressive.rate": 4, "compressive.size": 1536},
        "expire_span-2": expire | {"train.seed": 2},
        "expire_span-3": expire | {"train.seed": 3},
    }.items():
        yield sweep.Run(name, CONFIG, length | values, files=light)


def main():
    columns = {
        "executions right, %": sweep.measured("answer_accuracy", "{:.1f}", times=100),
        **sweep.MEMORY,
        "peak memory, MB": lambda result: f"{result['peak_memory'] / 1e6:.0f}",
        "ms per update": lambda result: f"{result['ms_per_update_median']:.0f}",
    }
    sweep.table(HERE, sweep.main(HERE, list(runs()), __doc__), columns)


if __name__ == "__main__":
    main()
