#!/usr/bin/env python3
"""Turns the runs of this experiment into results/TASK_KIND.json and a table.

    .venv/bin/python experiments/tasks/summarise.py [RUNS]      # default: runs/tasks

Steps to 100 % are those of the first validation in which every scored position is right. Runs without RUN/test.json, which have not
ended, are left out.
"""

import json
import pathlib
import statistics
import sys
import tomllib

HERE = pathlib.Path(__file__).parent
TASKS = ("variable_assignment", "variable_assignment_medium", "variable_assignment_small", "copy", "parity")
KINDS = ("selective", "standard")


def summarise_run(run):
    config = tomllib.loads((run / "config.toml").read_text())
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    valid = [line for line in lines if line["split"] == "valid"]
    perfect = [line["update"] for line in valid if line["accuracy"] == 1]
    result = {
        "seed": config["train"]["seed"],
        "batch": config["train"]["batch"],
        "updates": lines[-1]["update"],
        "steps_to_all_right": perfect[0] if perfect else None,
        "sequences_to_all_right": perfect[0] * config["train"]["batch"] if perfect else None,
        "validation": [{key: line[key] for key in ("update", "loss", "accuracy")} for line in valid],
    }
    test = json.loads((run / "test.json").read_text())
    result["test"] = {key: test[key] for key in ("loss", "accuracy", "scored")}
    sets = [json.loads(path.read_text()) for path in sorted(run.glob("ood-*.json"))]
    if sets:
        result["out_of_distribution"] = [{key: s[key] for key in ("loss", "accuracy", "scored")} for s in sets]
    return result


def percent(values):
    return ", ".join(f"{100 * value:.1f}" for value in values) or "–"


def table(results):
    rows = ["| task | attention | steps to 100 % validation accuracy | test accuracy, % | out of distribution, % |", "|---|---|---|---|---|"]
    for (task, kind), runs in results.items():
        steps = ", ".join(str(run["steps_to_all_right"] or f"> {run['updates']}") for run in runs)
        test = percent(run["test"]["accuracy"] for run in runs)
        other = percent(statistics.mean(s["accuracy"] for s in run["out_of_distribution"]) for run in runs if "out_of_distribution" in run)
        rows.append(f"| {task} | {kind} | {steps} | {test} | {other} |")
    return "\n".join(rows) + "\n"


def main():
    runs = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "runs/tasks")
    results = {}
    for task in TASKS:
        for kind in KINDS:
            found = [summarise_run(run) for run in sorted(runs.glob(f"{task}_{kind}_*")) if (run / "test.json").exists()]
            if found:
                results[task, kind] = found
    if not results:
        sys.exit(f"{runs}: no run of this experiment; experiments/tasks/run.sh makes them")
    out = HERE / "results"
    out.mkdir(exist_ok=True)
    for (task, kind), found in results.items():
        content = {"config": f"experiments/tasks/{task}_{kind}.toml", "runs": found}
        (out / f"{task}_{kind}.json").write_text(json.dumps(content, indent=2) + "\n")
    (out / "table.md").write_text(table(results))
    print(table(results), end="")


if __name__ == "__main__":
    main()
