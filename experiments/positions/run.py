"""Selective against standard attention with each kind of positions: on windows of bytes and words, and on the tasks that standard attention does not
learn with learned positions in experiments/tasks (experiments/positions/run.sh)."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import sweep  # noqa: E402

POSITIONS = ("absolute", "relative", "buckets")
TASKS = ("variable_assignment", "variable_assignment_small", "parity")
METHODS = {"selective": {}, "standard": {"forgetting.method": "fixed_span", "fixed_span.max_span": 512}}


def runs():
    texts = pathlib.Path(sweep.given("LAPSE_DATA"))
    files = {
        "enwik8": {"data.path": str(texts / "enwik8-head.txt")},
        "wikitext2": {f"data.{part}": str(texts / f"wikitext-2/wiki.{part}.tokens") for part in ("train", "valid", "test")},
    }
    for positions in POSITIONS:
        for text in files:
            for name, method in METHODS.items():
                values = {"model.positions": positions} | method
                yield sweep.Run(f"{text}-{name}-{positions}", f"experiments/selective/{text}_selective.toml", values, files=files[text])
    for task in TASKS:
        for seed in (1, 2, 3):
            for name in METHODS:
                values = {"train.seed": seed, "model.positions": "relative"}
                values |= {"forgetting.method": "fixed_span"} if name == "standard" else {}
                yield sweep.Run(f"{task}-{name}-relative-{seed}", f"experiments/tasks/{task}.toml", values)


def main():
    results = sweep.main(HERE, list(runs()), __doc__)
    columns = {"nats per byte or word, test": sweep.measured("loss", "{:.4f}"), "bits per byte": sweep.measured("bpb", "{:.4f}")}
    columns["accuracy of the answers, %"] = sweep.measured("accuracy", "{:.1f}", times=100)
    sweep.table(HERE, results, columns)


if __name__ == "__main__":
    main()
