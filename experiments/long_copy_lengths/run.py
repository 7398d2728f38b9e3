"""Extremely long copy with T = 500, 2,000 and 8,000: which reach learns it, and what matters for learning (experiments/long_copy_lengths/run.sh)."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import sweep  # noqa: E402

CONFIG = "examples/long_copy.toml"
SPANS = {500: 512, 2000: 2048, 8000: 8192}  # T: L
# Growing: a model of one T goes on with a longer T and L. Spans are shares of L, so that they grow with it. An update has fewer answers the
# longer T is, and alpha presses less.
GROWN = {
    500: {"expire_span.max_span": 512, "train.updates": 3000},
    2000: {"expire_span.max_span": 2048, "train.updates": 3000, "optimiser.rate": 3e-4},
    4000: {"expire_span.max_span": 4096, "train.updates": 3000, "optimiser.rate": 3e-4, "expire_span.loss": 5e-6},
    8000: {"expire_span.max_span": 8192, "train.updates": 4000, "optimiser.rate": 3e-4, "expire_span.loss": 2.5e-6},
}
# What distinguishes the preset from settings that did not learn, and the loss that the paper rejects: one at a time, in shorter runs.
CHANGED = {
    "short": {"train.updates": 3000},  # all as in the preset
    "block_128": {"train.block": 128, "train.updates": 6000},  # as many answers are read
    "begin_0.1": {"expire_span.initial_fraction": 0.1, "train.updates": 3000},
    "alpha_1e-6": {"expire_span.loss": 1e-6, "train.updates": 3000},
    "clip_0.1": {"optimiser.clip": 0.1, "train.updates": 3000},
    "rate_7e-4": {"optimiser.rate": 7e-4, "train.updates": 3000},
    "constant_rate": {"optimiser.schedule": "constant", "train.updates": 3000},
    "loss_at_creation": {"expire_span.loss_at": "creation", "train.updates": 3000},  # 4.2 says that it is worse
}


def runs():
    for seed in range(1, 4):
        yield sweep.Run(f"T500-expire_span-{seed}", CONFIG, {"train.seed": seed})
    for name, values in CHANGED.items():
        yield sweep.Run(f"T500-{name}", CONFIG, values)
    yield sweep.Run("T500-adaptive_span_512", CONFIG, {"forgetting.method": "adaptive_span", "adaptive_span.max_span": 512, "adaptive_span.initial_fraction": 0.5})
    for gap, reach in SPANS.items():
        task = {"long_copy.gap": gap}
        if gap > 500:  # an update sees as many answers as there are gaps in its tokens: longer gaps want more updates
            yield sweep.Run(f"T{gap}-expire_span-1", CONFIG, task | {"expire_span.max_span": reach, "train.updates": 13000})
        for span in (gap // 64, gap // 8, reach):
            fixed = {"forgetting.method": "fixed_span", "fixed_span.max_span": span}
            updates = {} if gap == 500 else {"train.updates": 13000}
            yield sweep.Run(f"T{gap}-fixed_span_{span}", CONFIG, task | fixed | updates)
    for seed in range(1, 4):
        before = ""
        for gap, values in GROWN.items():
            values = {"long_copy.gap": gap, "train.seed": seed} | values
            yield sweep.Run(f"grown-T{gap}-expire_span-{seed}", CONFIG, values, begins_from=before)
            if gap == 8000:  # spans end at some 0.75 L: does a longer L reach the longest gaps?
                longer = values | {"expire_span.max_span": 10240}
                yield sweep.Run(f"grown-T{gap}-L10240-expire_span-{seed}", CONFIG, longer, begins_from=before)
            before = f"grown-T{gap}-expire_span-{seed}"
    # The same with L = 2 T: then the longest gaps are reached where sigmoid is steep, not at its end. And from T = 2,000 on with a ramp that
    # grows with T, since a span learns only from questions that fall on its row's ramp, and alpha that falls as questions become rarer.
    for seed in range(1, 4):
        before = ramped = ""
        for gap, values in GROWN.items():
            values = {"long_copy.gap": gap, "train.seed": seed} | values | {"expire_span.max_span": 2 * gap}
            yield sweep.Run(f"wide-T{gap}-expire_span-{seed}", CONFIG, values, begins_from=before)
            if gap > 500:
                yield sweep.Run(f"ramp-T{gap}-expire_span-{seed}", CONFIG, values | {"expire_span.ramp": gap // 32, "expire_span.loss": 5e-3 / gap}, begins_from=ramped or before)
                ramped = f"ramp-T{gap}-expire_span-{seed}"
            if gap == 2000:  # either alone
                yield sweep.Run(f"longer_ramp-T{gap}-expire_span-{seed}", CONFIG, values | {"expire_span.ramp": gap // 32}, begins_from=before)
                yield sweep.Run(f"lower_alpha-T{gap}-expire_span-{seed}", CONFIG, values | {"expire_span.loss": 5e-3 / gap}, begins_from=before)
            before = f"wide-T{gap}-expire_span-{seed}"


def main():
    right = {"test sequences right, %": sweep.measured("answer_accuracy", "{:.1f}", times=100)}
    sweep.table(HERE, sweep.main(HERE, list(runs()), __doc__), sweep.UPDATES | right | sweep.MEMORY)


if __name__ == "__main__":
    main()
