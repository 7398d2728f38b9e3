"""Figure 10's form at reduced size: perplexity per word against mean memory size on WikiText-2, with adaptive input and softmax
(experiments/wikitext2/run.sh)."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import sweep  # noqa: E402

CONFIG = "examples/wikitext2.toml"


def runs():
    texts = pathlib.Path(sweep.given("LAPSE_DATA")) / "wikitext-2"
    files = {f"data.{part}": str(texts / f"wiki.{part}.tokens") for part in ("train", "valid", "test")}
    length = {"train.updates": 2000, "train.log_every": 50, "train.validate_every": 500, "train.checkpoint_every": 250}  # a pass over the text
    run = lambda name, values: sweep.Run(name, CONFIG, length | values, {"test": ["--streams=1"]}, files=files)
    fixed = lambda span: {"forgetting.method": "fixed_span", "fixed_span.max_span": span}
    # The longest and the shortest first: does memory matter at this size?
    yield run("fixed_span_512-1", fixed(512))
    yield run("fixed_span_16-1", fixed(16))
    yield run("expire_span_1e-5-1", {"expire_span.loss": 1e-5})
    yield run("fixed_span_64-1", fixed(64))
    yield run("expire_span_1e-6-1", {})
    yield run("fixed_span_32-1", fixed(32))
    yield run("expire_span_1e-4-1", {"expire_span.loss": 1e-4})
    # The same positions for all: buckets of ages, where a fixed span else has an embedding for each of its ages.
    for seed in (1, 2):
        same = {"model.positions": "buckets", "train.seed": seed}
        for span in (16, 64, 512, 128, 32, 256):
            yield run(f"fixed_span_{span}_buckets-{seed}", same | fixed(span))
        for alpha in ("1e-5", "1e-4", "1e-6"):
            yield run(f"expire_span_{alpha}_buckets-{seed}", same | {"expire_span.loss": float(alpha)})
        # What is the ramp's, what the spans'? A cost that leaves no span: a window of R words that fade.
        for ramp in (32, 64):
            no_spans = {"expire_span.loss": 1e-2, "expire_span.initial_fraction": 0.01, "expire_span.ramp": ramp}
            yield run(f"only_ramp_{ramp}_buckets-{seed}", same | no_spans)


def main():
    words = {"perplexity per word, test": sweep.measured("ppl", "{:.1f}")}
    sweep.table(HERE, sweep.main(HERE, list(runs()), __doc__), words | sweep.MEMORY)


if __name__ == "__main__":
    main()
