"""Characters of novels: fixed spans against Expire-Span with the paper's training of PG-19 (experiments/pg19/run.sh)."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import sweep  # noqa: E402

CONFIG = "examples/pg19.toml"


def runs():
    novels = pathlib.Path(sweep.given("LAPSE_DATA")) / "novels"
    files = {f"data.{part}": str(novels / f"{part}.txt.gz") for part in ("train", "valid", "test")}
    length = {"train.updates": 5000, "train.log_every": 100, "train.validate_every": 500, "train.checkpoint_every": 500}
    run = lambda name, values: sweep.Run(name, CONFIG, length | values, files=files)
    fixed = lambda span: {"forgetting.method": "fixed_span", "fixed_span.max_span": span}
    for seed in (1, 2, 3):
        yield run(f"expire_span-{seed}", {"train.seed": seed})
        for span in (128, 512, 1024):
            yield run(f"fixed_span_{span}-{seed}", {"train.seed": seed} | fixed(span))
    # The same positions for all: buckets of ages, where a fixed span else has an embedding for each of its ages.
    for seed in (1, 2, 3):
        same = {"model.positions": "buckets", "train.seed": seed}
        yield run(f"expire_span_buckets-{seed}", same)
        yield from (run(f"fixed_span_{span}_buckets-{seed}", same | fixed(span)) for span in (64, 128, 512, 1024))
        # What is the ramp's, what the spans'? A cost that leaves no span: a window of R characters that fade.
        yield run(f"only_ramp_buckets-{seed}", same | {"expire_span.loss": 1e-2, "expire_span.initial_fraction": 0.01})


def main():
    bits = {"bits per byte, test": sweep.measured("bpb", "{:.3f}")}
    sweep.table(HERE, sweep.main(HERE, list(runs()), __doc__), bits | sweep.MEMORY)


if __name__ == "__main__":
    main()
