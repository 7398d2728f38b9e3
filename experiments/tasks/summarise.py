#!/usr/bin/env python3
"""Turns the runs of this experiment into results/TASK_KIND.json and a table.

    .venv/bin/python experiments/tasks/summarise.py [RUNS]      # default: runs/tasks

Steps to 100 % are those of the first validation in which every scored position is right. A guess says the value of any one of the
variables. Runs without RUN/test.json, which have not ended, are left out, and evaluations that did not reach their end refused; of seeds that are not there results/ keeps the runs that
were made with the same settings.
"""

import json
import pathlib
import statistics
import sys
import tomllib

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from run_metrics import read_eval, read_lines, settings  # noqa: E402

TASKS = ("variable_assignment", "variable_assignment_small", "copy", "parity")
KINDS = ("selective", "standard")
OOD_VALUES = 2  # what run.sh asks for


def summarise_run(run):
    config = tomllib.loads((run / "config.toml").read_text())
    lines = read_lines(run)
    valid = [line for line in lines if line["split"] == "valid"]
    perfect = [line["update"] for line in valid if line["accuracy"] == 1]
    result = {
        "seed": config["train"]["seed"],
        "settings": settings(run),
        "updates": lines[-1]["update"],
        "steps_to_all_right": perfect[0] if perfect else None,
        "sequences_to_all_right": perfect[0] * config["train"]["batch"] if perfect else None,
        "validation": [{key: line[key] for key in ("update", "loss", "accuracy")} for line in valid],
    }
    test = read_eval(run / "test.json")
    result["test"] = {key: test[key] for key in ("loss", "accuracy", "answer_accuracy", "scored", "complete") if key in test}
    sets = [read_eval(path) for path in sorted(run.glob("ood-*.json"))]
    if sets:
        result["out_of_distribution"] = [{key: s[key] for key in ("loss", "accuracy", "scored", "complete")} for s in sets]
    return result


def percent(values):
    return ", ".join(f"{100 * value:.1f}" for value in values) or "–"


def guesses(runs):
    """How often a guess is right in the test set and out of distribution, where the task is Variable Assignment."""
    options = runs[0].get("settings", {}).get("variable_assignment")
    if not options:
        return "–", "–"
    right = 1 / options["variables"]
    return [percent([right + (1 - right) / values]) for values in (options["values"], OOD_VALUES)]


def cut_short(run):
    """(number, sequences read, sequences in all) of each set out of distribution that was not read to its end. A sequence of
    Variable Assignment has one scored position."""
    sets = run.get("out_of_distribution", [])
    wanted = run["settings"]["variable_assignment"]["test_sequences"] if sets else 0
    return [(number, s["scored"], wanted) for number, s in enumerate(sets, 1) if s["scored"] < wanted]


def out_of_distribution(runs):
    """The mean of each run's sets, with a star where one was not read to its end."""
    cells = []
    for run in (run for run in runs if "out_of_distribution" in run):
        mean = statistics.mean(s["accuracy"] for s in run["out_of_distribution"])
        cells.append(percent([mean]) + ("*" if cut_short(run) else ""))
    return ", ".join(cells) or "–"


def notes(results):
    """A line for each star of the table."""
    for (task, kind), runs in results.items():
        for run in runs:
            for number, read, wanted in cut_short(run):
                yield f"\\* {task}, {kind}, seed {run['seed']}: out-of-distribution set {number} was read in part, {read:,} of {wanted:,} sequences."


def table(results):
    heads = ["task", "attention", "steps to 100 % validation accuracy", "test accuracy, %", "a guess, %", "whole answers, %"]
    heads += ["out of distribution, %", "a guess, %"]
    rows = [heads]
    for (task, kind), runs in results.items():
        steps = ", ".join(str(run["steps_to_all_right"] or f"> {run['updates']}") for run in runs)
        test = percent(run["test"]["accuracy"] for run in runs)
        whole = percent(run["test"]["answer_accuracy"] for run in runs if "answer_accuracy" in run["test"])
        other = out_of_distribution(runs)
        guess, other_guess = guesses(runs)
        rows.append([task, kind, steps, test, guess, whole, other, other_guess])
    shown = [column for column in zip(*rows) if any(cell != "–" for cell in column[1:])]
    lines = [f"| {' | '.join(row)} |" for row in zip(*shown)]
    return "\n".join([lines[0], "|" + "---|" * len(shown), *lines[1:], "", *notes(results)]).rstrip() + "\n"


def merged(path, found):
    """The runs that a file of results holds, each replaced by the run of its seed that was found. Only runs of one kind go together:
    where any was found, what the file holds of other settings, or of none, is dropped."""
    held = json.loads(path.read_text())["runs"] if path.exists() else []
    if not found:
        return held
    if any(run["settings"] != found[0]["settings"] for run in found):
        sys.exit(f"{path.stem}: the runs' settings differ; see their config.toml, and move away those of other settings")
    runs = {run["seed"]: run for run in held if run.get("settings") == found[0]["settings"]}
    runs.update({run["seed"]: run for run in found})
    return [runs[seed] for seed in sorted(runs)]


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "runs/tasks")
    out = HERE / "results"
    out.mkdir(exist_ok=True)
    results = {}
    for task in TASKS:
        for kind in KINDS:
            path = out / f"{task}_{kind}.json"
            found = [summarise_run(run) for run in sorted(folder.glob(f"{task}_{kind}_[0-9]*")) if (run / "test.json").exists()]
            if not (runs := merged(path, found)):
                continue
            results[task, kind] = runs
            if found:
                path.write_text(json.dumps({"config": f"experiments/tasks/{task}.toml", "attention": kind, "runs": runs}, indent=2) + "\n")
    if not results:
        sys.exit(f"{folder}: no run of this experiment; experiments/tasks/run.sh makes them")
    (out / "table.md").write_text(table(results))
    print(table(results), end="")


if __name__ == "__main__":
    main()
