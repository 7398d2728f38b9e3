#!/usr/bin/env python3
"""Turns the runs of experiments/TASK (long_copy or collision) into TASK/results/NAME.json and a table.

    .venv/bin/python experiments/stream_tasks.py TASK [RUNS]      # default: runs/TASK

Runs without RUN/test.json, which have not ended, are left out; of configurations whose run is not there results/ keeps what it has.
"""

import json
import pathlib
import statistics
import sys

from run_metrics import read_eval, read_lines, settings

HERE = pathlib.Path(__file__).parent
# What a task's metrics are called, and what the table shows of it.
METRICS = {
    "long_copy": ("answer_accuracy", "share of test sequences right, %", lambda right: 100 * right),
    "collision": ("accuracy", "test error, %", lambda right: 100 * (1 - right)),
}


def mean_memory(line):
    return round(statistics.mean(layer["memory_mean"] for layer in line["layers"]), 1)


def summarise(task, run):
    metric = METRICS[task][0]
    lines = read_lines(run)
    valid = [line for line in lines if line["split"] == "valid"]
    train = [line for line in lines if line["split"] == "train"]
    some = reversed(train[:: -max(1, len(train) // 20)])  # 20 to 40, evenly spaced, the last among them
    test = read_eval(run / "test.json")
    return {
        "config": f"experiments/{task}/{run.name}.toml",
        "settings": settings(run),
        "updates": lines[-1]["update"],
        "validation": [{key: line[key] for key in ("update", "loss", metric)} for line in valid],
        "test": {key: test[key] for key in ("loss", metric, "scored", "answers", "complete")},
        "memory_mean_per_layer": [round(layer["memory_mean"], 1) for layer in test["layers"]],
        "memory_max_per_layer": [layer["memory_max"] for layer in test["layers"]],
        "memory_mean_in_training": {line["update"]: mean_memory(line) for line in some},
        "ms_per_update_median": round(statistics.median(line["ms_per_update"] for line in train), 1),
        "peak_memory_bytes": max(line["peak_memory"] for line in train),
    }


def table(task, results):
    metric, heading, shown = METRICS[task]
    rows = [f"| configuration | {heading} | memory size, mean of the layers |", "|---|---|---|"]
    for name, r in results.items():
        rows.append(f"| {name} | {shown(r['test'][metric]):.1f} | {statistics.mean(r['memory_mean_per_layer']):.0f} |")
    return "\n".join(rows) + "\n"


def main():
    if len(sys.argv) < 2 or sys.argv[1] not in METRICS:
        sys.exit(f"usage: stream_tasks.py {'|'.join(METRICS)} [RUNS]")
    task = sys.argv[1]
    runs = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else f"runs/{task}")
    out = HERE / task / "results"
    out.mkdir(exist_ok=True)
    results = {}
    for name in sorted(path.stem for path in (HERE / task).glob("*.toml")):
        path = out / f"{name}.json"
        if (runs / name / "test.json").exists():
            path.write_text(json.dumps(summarise(task, runs / name), indent=2) + "\n")
        if path.exists():
            results[name] = json.loads(path.read_text())
    if not results:
        sys.exit(f"{runs}: no run of this experiment; experiments/stream_tasks.sh {task} makes them")
    (out / "table.md").write_text(table(task, results))
    print(table(task, results), end="")


if __name__ == "__main__":
    main()
