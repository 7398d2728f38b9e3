"""T5 whose decoder forgets by selective attention against the plain one (A.9, Table 7), reduced (experiments/t5/run.sh).

examples/t5.toml on pieces of Wikipedia, sources of 512 pieces and targets of 114 as in the paper, three seeds each.
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import sweep  # noqa: E402

LENGTH = {"train.block": 512, "train.batch": 8, "train.updates": 6000, "train.validate_every": 1000, "train.checkpoint_every": 500,
          "train.validation_blocks": 50, "train.log_every": 100, "data.split": [0.98, 0.01, 0.01], "data.unit": "subword"}  # fmt: skip


def runs():
    files = {"data.path": str(pathlib.Path(sweep.given("LAPSE_DATA")) / "wikipedia.txt.gz"), "data.tokenizer": sweep.given("LAPSE_PIECES")}
    for kind, text in (("", {}), ("documents-", {"data.documents": "<doc </doc>"})):  # the first have the lines <doc ...> in their text
        for seed in (1, 2, 3):
            for name, method in (("selective", "selective_attention"), ("standard", "fixed_span")):
                values = LENGTH | text | {"forgetting.method": method, "train.seed": seed}
                yield sweep.Run(f"{kind}{name}-{seed}", "examples/t5.toml", values, files=files)


def main():
    loss = {"nats per token of the targets, test": sweep.measured("loss", "{:.4f}")}
    sweep.table(HERE, sweep.main(HERE, list(runs()), __doc__), sweep.UPDATES | loss)


if __name__ == "__main__":
    main()
