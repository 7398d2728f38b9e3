#!/usr/bin/env python3
"""Turns the runs of this experiment into results/results.json and a table.

    .venv/bin/python experiments/units/summarise.py [RUNS]      # default: runs/units
"""

import json
import math
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from run_metrics import read_eval, read_lines  # noqa: E402

UNITS = ("byte", "character", "word", "subword")


def summarise(run):
    lines = read_lines(run)
    test = read_eval(run / "test.json")
    return {
        "updates": lines[-1]["update"],
        "validation_bpb": {line["update"]: line["bpb"] for line in lines if line["split"] == "valid"},
        "test": {key: test[key] for key in ("loss", "bpb", "tokens", "complete")},
        # Every token costs loss / ln 2 bits; bpb is what they cost in all, and what is unknown, per byte.
        "bits_per_token": test["loss"] / math.log(2),
        "memory_mean": round(statistics.mean(layer["memory_mean"] for layer in test["layers"]), 1),
    }


def table(results):
    rows = ["| a token is a | tokens of the test part | bits per token | bits per byte | memory size, tokens |", "|---|---:|---:|---:|---:|"]
    for unit, r in results.items():
        test = r["test"]
        rows.append(f"| {unit} | {test['tokens']:,} | {r['bits_per_token']:.3f} | {test['bpb']:.3f} | {r['memory_mean']:.0f} |")
    return "\n".join(rows) + "\n"


def main():
    runs = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "runs/units")
    missing = [unit for unit in UNITS if not (runs / unit / "test.json").exists()]
    if missing:
        sys.exit(f"{runs}: no run of {', '.join(missing)}; experiments/units/run.sh makes them")
    results = {unit: summarise(runs / unit) for unit in UNITS}
    out = HERE / "results"
    out.mkdir(exist_ok=True)
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (out / "table.md").write_text(table(results))
    print(table(results), end="")


if __name__ == "__main__":
    main()
