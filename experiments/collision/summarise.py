#!/usr/bin/env python3
"""Turns the runs of this experiment into results/NAME.json and a table.

    .venv/bin/python experiments/collision/summarise.py [RUNS]      # default: runs/collision
"""

import json
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).parent


def summarise(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    valid = [line for line in lines if line["split"] == "valid"]
    timed = [line for line in lines if line["split"] == "train"]
    test = json.loads((run / "test.json").read_text())
    return {
        "config": f"experiments/collision/{run.name}.toml",
        "updates": lines[-1]["update"],
        "validation": [{key: line[key] for key in ("update", "loss", "accuracy")} for line in valid],
        "test": {key: test[key] for key in ("loss", "accuracy", "scored", "answers")},
        "memory_mean_per_layer": [round(layer["memory_mean"], 1) for layer in test["layers"]],
        "memory_max_per_layer": [layer["memory_max"] for layer in test["layers"]],
        "ms_per_update_median": round(statistics.median(line["ms_per_update"] for line in timed), 1),
        "peak_memory_bytes": max(line["peak_memory"] for line in timed),
    }


def table(results):
    rows = ["| run | test error, % | memory size, mean of the layers | ms per update |", "|---|---|---|---|"]
    for name, r in results.items():
        value = 100 * (1 - r["test"]["accuracy"])
        rows.append(f"| {name} | {value:.1f} | {statistics.mean(r['memory_mean_per_layer']):.0f} | {r['ms_per_update_median']:.0f} |")
    return "\n".join(rows) + "\n"


def main():
    runs = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "runs/collision")
    names = sorted(path.stem for path in HERE.glob("*.toml"))
    results = {name: summarise(runs / name) for name in names if (runs / name / "test.json").exists()}
    if not results:
        sys.exit(f"{runs}: no run of this experiment; experiments/collision/run.sh makes them")
    out = HERE / "results"
    out.mkdir(exist_ok=True)
    for name, r in results.items():
        (out / f"{name}.json").write_text(json.dumps(r, indent=2) + "\n")
    (out / "table.md").write_text(table(results))
    print(table(results), end="")


if __name__ == "__main__":
    main()
