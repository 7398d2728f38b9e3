"""Which tokens selective attention masks (section 7, Figures 1, 5, 9 to 11): the models whose patterns patterns.py looks at, copy and parity
of A.2, and two seeds of the smallest model on documents (experiments/patterns/run.sh).
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import sweep  # noqa: E402


def runs():
    yield sweep.Run("parity", "experiments/tasks/parity.toml")
    yield sweep.Run("copy", "experiments/tasks/copy.toml")
    files = {"data.path": str(pathlib.Path(sweep.given("LAPSE_DATA")) / "wikipedia.txt.gz"), "data.tokenizer": sweep.given("LAPSE_PIECES")}
    for seed in (1, 2):
        yield sweep.Run(f"documents-{seed}", "experiments/documents/base.toml", {"train.seed": seed}, files=files)


def main():
    loss = {"loss, nats": sweep.measured("loss", "{:.4f}"), "accuracy, %": sweep.measured("accuracy", "{:.1f}", times=100)}
    sweep.table(HERE, sweep.main(HERE, list(runs()), __doc__), sweep.UPDATES | loss)


if __name__ == "__main__":
    main()
