#!/usr/bin/env python3
"""Turns the runs of experiments/TASK (long_copy or collision) into TASK/results/NAME.json and a table.

    .venv/bin/python experiments/stream_tasks.py TASK [RUNS]      # default: runs/TASK
"""

import json
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).parent
# What a task's metrics are called, and what the table shows of it.
METRICS = {
    "long_copy": ("answer_accuracy", "share of test sequences right, %", lambda right: 100 * right),
    "collision": ("accuracy", "test error, %", lambda right: 100 * (1 - right)),
}


def summarise(task, run):
    metric = METRICS[task][0]
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    valid = [line for line in lines if line["split"] == "valid"]
    timed = [line for line in lines if line["split"] == "train"]
    test = json.loads((run / "test.json").read_text())
    return {
        "config": f"experiments/{task}/{run.name}.toml",
        "updates": lines[-1]["update"],
        "validation": [{key: line[key] for key in ("update", "loss", metric)} for line in valid],
        "test": {key: test[key] for key in ("loss", metric, "scored", "answers")},
        "memory_mean_per_layer": [round(layer["memory_mean"], 1) for layer in test["layers"]],
        "memory_max_per_layer": [layer["memory_max"] for layer in test["layers"]],
        "ms_per_update_median": round(statistics.median(line["ms_per_update"] for line in timed), 1),
        "peak_memory_bytes": max(line["peak_memory"] for line in timed),
    }


def table(task, results):
    metric, heading, shown = METRICS[task]
    rows = [f"| run | {heading} | memory size, mean of the layers | ms per update |", "|---|---|---|---|"]
    for name, r in results.items():
        value = shown(r["test"][metric])
        rows.append(f"| {name} | {value:.1f} | {statistics.mean(r['memory_mean_per_layer']):.0f} | {r['ms_per_update_median']:.0f} |")
    return "\n".join(rows) + "\n"


def main():
    if len(sys.argv) < 2 or sys.argv[1] not in METRICS:
        sys.exit(f"usage: stream_tasks.py {'|'.join(METRICS)} [RUNS]")
    task = sys.argv[1]
    runs = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else f"runs/{task}")
    names = sorted(path.stem for path in (HERE / task).glob("*.toml"))
    results = {name: summarise(task, runs / name) for name in names if (runs / name / "test.json").exists()}
    if not results:
        sys.exit(f"{runs}: no run of this experiment; experiments/stream_tasks.sh {task} makes them")
    out = HERE / task / "results"
    out.mkdir(exist_ok=True)
    for name, r in results.items():
        (out / f"{name}.json").write_text(json.dumps(r, indent=2) + "\n")
    (out / "table.md").write_text(table(task, results))
    print(table(task, results), end="")


if __name__ == "__main__":
    main()
