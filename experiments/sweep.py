"""A list of runs: each is trained to its end, evaluated, and written to a JSON file of its own. What was interrupted goes on to the bit.

An experiment's run.py lists its runs and calls `main`. It then has the options --only, --list and --runs. LAPSE_DEVICE=cuda trains and reads them on
a GPU.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tomllib
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
LAPSE = pathlib.Path(os.environ.get("LAPSE", ROOT / "build" / "release" / "lapse"))
DEVICE = os.environ.get("LAPSE_DEVICE", "")  # "cuda": runs are trained and read there
ON_DEVICE = ["--device", DEVICE] if DEVICE else []


def given(name):
    """A variable of the environment that run.sh sets: LAPSE_DATA, LAPSE_PIECES."""
    if not os.environ.get(name):
        sys.exit(f"{sys.argv[0]}: {name} is not set; start the run.sh beside it, which sets it")
    return os.environ[name]


class Run(NamedTuple):
    name: str
    config: str  # from the root
    values: dict = {}  # over it: "train.seed": 2
    readings: dict = {"test": []}  # name: the options of a `lapse eval`
    budgets: dict = {}  # name: the run whose loss is to be reached, and further options of a `lapse prune`
    files: dict = {}  # further values, which say where this machine has its texts: no part of the result
    begins_from: str = ""  # the run whose last weights it begins with (train.from)


def lines_of(run, split):
    file = run / "metrics.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [line for line in lines if line["split"] == split]


def mean_memory(line):
    return statistics.mean(layer["memory_mean"] for layer in line["layers"])


def as_toml(value):
    return json.dumps(value) if isinstance(value, (str, bool)) else repr(value)


def train(run, wanted):
    """Of a run that is complete this checks that it has these settings: `lapse train --resume` refuses others."""
    first = {"train.from": str(run.parent / wanted.begins_from)} if wanted.begins_from else {}
    options = [f"--set={name}={as_toml(value)}" for name, value in (wanted.values | wanted.files | first).items()]
    if subprocess.run([LAPSE, "train", wanted.config, "--out", run, "--resume", *ON_DEVICE, *options], cwd=ROOT, check=False).returncode != 0:
        sys.exit(f"{run}: not trained to its end; run this again to go on, or mend what lapse says above")


def wanted_updates(wanted):
    return wanted.values.get("train.updates", tomllib.loads((ROOT / wanted.config).read_text())["train"]["updates"])


def said_of(verb, run, name, options):
    """What `lapse VERB --json` says of the newest checkpoint, kept beside it in RUN/NAME.json."""
    file = run / f"{name}.json"
    newest = max(path.stat().st_mtime for path in (run / "checkpoints").iterdir())
    if not file.exists() or file.stat().st_mtime < newest:
        found = subprocess.run([LAPSE, verb, run, "--json", *ON_DEVICE, *options], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
        file.write_text(found)
    return json.loads(file.read_text())


def evaluate(run, name, options):
    found = said_of("eval", run, name, options)
    return {key: value for key, value in found.items() if key not in ("run", "method", "layers")} | {
        "memory_mean": mean_memory(found), "memory_of_layers": [layer["memory_mean"] for layer in found["layers"]]}


def trained(run):
    config = run / "config.toml"
    return config.exists() and (run / "checkpoints" / f"update-{tomllib.loads(config.read_text())['train']['updates']:08}.safetensors").exists()


def prune(run, name, against, options):
    """Budgets at the loss of another run, and at the run's own; none before that other run is complete."""
    if not trained(against):
        print(f"{run.name}: {name} waits for {against.name}; run this again when that is trained")
        return None
    found = said_of("prune", run, name, [f"--standard={against}", f"--out={run / name}_pruned.safetensors", *options])
    kept = {key: found[key] for key in ("threshold", "budgets", "total", "full", "saved", "chosen_on", "measured_on")}
    kept["at_own_loss"] = found.get("at_own_loss")
    return kept | {"curve": [[each["total"], round(each["loss"], 5)] for each in found["rounds"]]}


def thinned(lines, most=50):
    return lines[:: -max(1, len(lines) // most)][::-1]


def summarise(run, wanted):
    train_lines, valid_lines = lines_of(run, "train"), lines_of(run, "valid")
    budgets = {name: prune(run, name, run.parent / against, options) for name, (against, *options) in wanted.budgets.items()}
    said = ("update", "loss", "bpb", "ppl", "accuracy", "answer_accuracy", "success", "return")
    point = lambda line: {key: line[key] for key in said if key in line} | {"memory_mean": round(mean_memory(line), 2)}
    return {
        "config": wanted.config,
        "values": wanted.values,
        **({"device": DEVICE} if DEVICE else {}),
        **({"begins_from": wanted.begins_from} if wanted.begins_from else {}),
        "updates": train_lines[-1]["update"],
        "training": [point(line) for line in thinned(train_lines)],
        "validation": [point(line) for line in valid_lines if "layers" in line],
        "ms_per_update_median": statistics.median(line["ms_per_update"] for line in train_lines),
        "peak_memory": max(line["peak_memory"] for line in train_lines),
        "evaluation": {name: evaluate(run, name, options) for name, options in wanted.readings.items()},
    } | ({"budgets": {name: found for name, found in budgets.items() if found}} if any(budgets.values()) else {})


def measured_already(out, wanted):
    if not out.exists():
        return False
    known = json.loads(out.read_text())
    same = (known["config"], known["values"], known.get("begins_from", "")) == (wanted.config, wanted.values, wanted.begins_from)
    return same and known["updates"] == wanted_updates(wanted)


def main(here, runs, description):
    """Runs what is asked for. Returns all results that are there, by name: also those of earlier calls."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument("--list", action="store_true", help="print their names, and how far they are")
    parser.add_argument("--runs", type=pathlib.Path, default=ROOT / "runs" / here.name)
    arguments = parser.parse_args()
    for wanted in runs:
        run = arguments.runs / wanted.name
        if arguments.only not in wanted.name:
            continue
        out = here / "results" / f"{wanted.name}.json"
        if arguments.list:
            done = lines_of(run, "train")
            known = ", its result is there" if measured_already(out, wanted) else ""
            print(f"{wanted.name:40} {done[-1]['update'] if done else 0} of {wanted_updates(wanted)} updates{known}")
            continue
        if not run.exists() and measured_already(out, wanted):
            print(f"{wanted.name}: its result is there, but not the run; remove {out.relative_to(ROOT)} to make both anew")
            continue
        if wanted.begins_from and not trained(arguments.runs / wanted.begins_from):
            known = (here / "results" / f"{wanted.begins_from}.json").exists()
            advice = f"remove results/{wanted.begins_from}.json to train that anew" if known else "run this again then"
            print(f"{wanted.name} begins from {wanted.begins_from}, and waits until that is trained; {advice}")
            continue
        train(run, wanted)
        out.parent.mkdir(exist_ok=True)
        out.write_text(json.dumps(summarise(run, wanted), indent=1) + "\n")
    if arguments.list:
        sys.exit()
    return measured_so_far(here, runs)


def measured_so_far(here, runs):
    """The results that are there, by name, in the order of the runs."""
    files = {wanted.name: here / "results" / f"{wanted.name}.json" for wanted in runs}
    return {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}


def as_table(results, columns):
    """A row for each result. `columns`: heading -> what it shows of a result."""
    rows = [["run", *columns]] + [["---"] * (len(columns) + 1)]
    rows += [[name, *(show(result) for show in columns.values())] for name, result in results.items()]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def table(here, results, columns, name="table"):
    """Writes results/NAME.md, and prints it."""
    text = as_table(results, columns)
    (here / "results").mkdir(exist_ok=True)
    (here / "results" / f"{name}.md").write_text(text)
    print(text, end="")


def measured(key, form, reading="test", times=1):
    """A column: a figure of an evaluation, if it has that."""

    def show(result):
        found = result["evaluation"][reading]
        return form.format(times * found[key]) if key in found else ""

    return show


UPDATES = {"updates": lambda result: str(result["updates"])}
MEMORY = {"mean memory, rows of a layer": measured("memory_mean", "{:.0f}")}
