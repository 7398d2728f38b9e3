#!/usr/bin/env python3
"""What selective attention masks in the models of run.py: numbers in experiments/patterns/patterns.json, and pictures.

    .venv/bin/python experiments/patterns/patterns.py [--runs DIR]      # once all runs are trained; some minutes

F is in nats: a row's weight is multiplied by exp(-F).
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import matplotlib
import numpy as np

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "lapse"  # the same file for the same numbers
import matplotlib.pyplot as plt  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import sweep  # noqa: E402

SEQUENCES = 20  # of copy, each of a test set of its own
DOCUMENTS = 300  # that fill the window; the validation and the test part have as many
AGES = ((1, 7), (8, 31), (32, 127), (128, 255))


def lapse(*arguments):
    subprocess.run([sweep.LAPSE, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def matrices(run, out, *options, what="masking"):
    """(the tokens of the one sequence or document, [query][row] of each layer with 0 for later rows), from `lapse inspect --matrix`."""
    lapse("inspect", run, f"--matrix={what}", "-o", out, *options)
    found = json.loads(out.read_text())
    square = lambda lines: np.array([line + [0.0] * (len(lines) - len(line)) for line in lines])
    return found["tokens"], [square(layer["heads"][0]) for layer in found["layers"]]


def rounded(values, digits=1):
    return [round(float(value), digits) for value in values]


def parity(run, folder):
    """Mean F of each layer on older tokens than the last two, which cannot be masked, over 100 sequences. Rows: BOS is never masked."""
    _, layers = matrices(run, folder / "parity.json", "--documents=100")
    mean = lambda F, ages: statistics.mean(F[n, n - age] for n in range(16, len(F)) for age in ages)
    return {"2 to 15 tokens ago": rounded(mean(F, range(2, 16)) for F in layers)}


def end_of_string(tokens):
    """Where a sequence of copy has its separator."""
    return [token.strip() for token in tokens].index("|")


def copy(run, folder):
    """Mean F of each layer on the string's letters: when its end was read; and then on those that are copied, and those to come."""
    found = {name: [] for name in ("string read", "copied", "to come")}  # one list of layers for each sequence
    for seed in range(1, SEQUENCES + 1):
        tokens, layers = matrices(run, folder / "copy.json", f"--test-seed={seed}")
        end = end_of_string(tokens)
        length = end - 1
        if length < 4:
            continue
        query = lambda copied: end + copied  # has read so many letters of the copy
        pairs = {
            "string read": [(end, row) for row in range(1, end)],
            "copied": [(query(n), row) for n in range(2, length) for row in range(1, n)],
            "to come": [(query(n), row) for n in range(2, length) for row in range(n + 1, end)],
        }
        for name, places in pairs.items():
            found[name].append([statistics.mean(F[place] for place in places) for F in layers])
    return {name: rounded(np.mean(values, axis=0)) for name, values in found.items()} | {"sequences": len(found["copied"])}


def of_ages(F, least, most):
    return statistics.mean(F[n, n - age] for n in range(most, len(F)) for age in range(least, most + 1) if n - age > 0) if most < len(F) else None


def correlation(a, b):
    """Of two matrices' mean F, over pairs of a query and an earlier row, BOS aside."""
    places = np.tril_indices(len(a), -1)
    later = places[1] > 0
    return float(np.corrcoef(a[places][later], b[places][later])[0, 1])


def budgets(run, folder):
    """The fewest rows of each layer at the run's own loss, and the checkpoint that has them."""
    out = folder / f"{run.name}.safetensors"
    done = subprocess.run([sweep.LAPSE, "prune", run, "--min-fill=1", "-o", out, "--json"], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return json.loads(done.stdout)["budgets"], out


def documents(runs, folder):
    parts = {}
    for run in runs:
        for part in ("valid", "test"):
            out = folder / f"{run.name}-{part}.json"
            parts[run.name, part] = matrices(run, out, f"--split={part}", f"--documents={DOCUMENTS}", "--min-fill=1")[1]
    found, kept = {}, []
    for run in runs:
        layers = parts[run.name, "test"]
        least, pruned = budgets(run, folder)
        lapse("inspect", pruned, "--matrix=kept", "--min-fill=1", f"--documents={DOCUMENTS}", "-o", folder / f"{run.name}-kept.json")
        kept.append(folder / f"{run.name}-kept.json")
        found[run.name] = {
            "mean F by age": {f"{a} to {b}": rounded(of_ages(F, a, b) for F in layers) for a, b in AGES},
            "correlation of two sets of documents": rounded((correlation(a, b) for a, b in zip(layers, parts[run.name, "valid"])), 3),
            "budgets at its own loss": least,
        }
    first, second = (parts[run.name, "test"] for run in runs)
    found["correlation of two seeds"] = [rounded((correlation(a, b) for b in second), 2) for a in first]
    lapse("plot", *(folder / f"{run.name}-test.json" for run in runs), *(f"--label={run.name}" for run in runs), "-o", HERE / "results" / "masking.png")
    lapse("plot", *kept, *(f"--label={run.name}" for run in runs), "-o", HERE / "results" / "kept.png")
    return found


def picture(runs, folder):
    """F in one sequence of each task, layer by layer: Figure 1."""
    figure, all_axes = plt.subplots(2, 3, figsize=(10.5, 7.4), layout="constrained")
    of_copy = (matrices(runs[1], folder / "one.json", f"--test-seed={seed}") for seed in range(1, SEQUENCES + 1))
    seen = [matrices(runs[0], folder / "one.json"), next(found for found in of_copy if 10 <= end_of_string(found[0]) <= 16)]
    for line, (run, (tokens, layers), shown) in enumerate(zip(runs, seen, (24, 51))):
        names = [token.strip() or "pad" for token in tokens][:shown]
        for column, (axes, F) in enumerate(zip(all_axes[line], layers)):
            F = np.where(np.tril(np.ones_like(F)) > 0, F, np.nan)[: len(names), : len(names)]
            image = axes.imshow(F, vmin=0, vmax=20, cmap="viridis", interpolation="nearest")
            axes.set_xticks(range(len(names)), names, fontsize=5)
            axes.set_yticks(range(len(names)), names, fontsize=5)
            axes.set_title(f"{run.name}, layer {column}", fontsize=8)
    figure.colorbar(image, ax=all_axes, shrink=0.6, extend="max", label="F, nats")
    figure.savefig(HERE / "results" / "tasks.svg", metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=pathlib.Path, default=sweep.ROOT / "runs" / HERE.name)
    where = parser.parse_args().runs
    waiting = [name for name in ("parity", "copy", "documents-1", "documents-2") if not sweep.trained(where / name)]
    if waiting:
        sys.exit(f"experiments/patterns/patterns.py: not trained yet: {', '.join(waiting)}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        found = {"parity": parity(where / "parity", folder), "copy": copy(where / "copy", folder)}
        picture([where / "parity", where / "copy"], folder)
        found["documents"] = documents([where / f"documents-{seed}" for seed in (1, 2)], folder)
    (HERE / "patterns.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
