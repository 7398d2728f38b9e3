"""Runs the experiments of experiments/rl one after the other, and evaluates those that have ended (experiments/rl/run.sh).

    .venv/bin/python experiments/rl/run.py [--only TEXT] [--list] [--runs DIR]

A run is trained in pieces. It ends after its own number of steps, or as soon as its score has been above the experiment's mark, on average
over the last 2 M steps. What was interrupted goes on to the bit.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tomllib

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
LAPSE = pathlib.Path(os.environ.get("LAPSE", ROOT / "build" / "release" / "lapse"))
PIECE = WINDOW = 2_000_000  # steps
PAPER = 100_000_000


def experiments():
    """(name, configuration, values over it, steps, mark): the name's first part is the figure."""
    corridor, portal = "examples/paper-corridor.toml", "examples/paper-portal.toml"
    for seed in range(1, 6):
        yield f"corridor/expire_span-{seed}", corridor, {"train.seed": seed}, PAPER, 0.99
    for seed in range(1, 3):
        short = {"train.seed": seed, "expire_span.initial_fraction": 0.1}
        yield f"corridor/short_beginning-{seed}", corridor, short, PAPER, 0.99
    for span in (10, 25, 50, 100, 150, 200):
        fixed = {"forgetting.method": '"fixed_span"', "fixed_span.max_span": span}
        yield f"corridor/fixed_span_{span}-1", corridor, fixed, PAPER, 0.99
    for seed in range(1, 4):
        yield f"portal/expire_span-{seed}", portal, {"train.seed": seed}, 40_000_000, None
    for span in (10, 25, 50, 100):
        fixed = {"forgetting.method": '"fixed_span"', "fixed_span.max_span": span}
        yield f"portal/fixed_span_{span}-1", portal, fixed, 40_000_000, None
    # Is it the number of updates that limits these? 16 times as many, of 64 environments; spans begin at 0.9 L, as in Corridor.
    often = {"train.batch": 64, "train.parts": 1, "optimiser.rate": 1e-3}
    for seed in range(1, 4):
        yield f"portal/often_expire_span-{seed}", portal, often | {"train.seed": seed, "expire_span.initial_fraction": 0.9}, 20_000_000, None
        for span in (10, 25, 50, 100):
            fixed = {"forgetting.method": '"fixed_span"', "fixed_span.max_span": span, "train.seed": seed}
            yield f"portal/often_fixed_span_{span}-{seed}", portal, often | fixed, 20_000_000, None


def steps_of(run):
    config = tomllib.loads((run / "config.toml").read_text())
    return config["train"]["batch"] * config["train"]["block"]


def train_lines(run):
    file = run / "metrics.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [line for line in lines if line["split"] == "train"]


def recent(run, key):
    """The score of the last WINDOW steps, each line by its episodes; None where the run is not so long."""
    lines = train_lines(run)
    if not lines or lines[-1]["update"] * (per_update := steps_of(run)) < WINDOW:
        return None
    last = [line for line in lines if line["update"] * per_update > lines[-1]["update"] * per_update - WINDOW and line.get("episodes")]
    return sum(line[key] * line["episodes"] for line in last) / max(1, sum(line["episodes"] for line in last))


def train(run, config, values, steps, mark, key):
    settings = tomllib.loads((ROOT / config).read_text())["train"]
    per_update = values.get("train.batch", settings["batch"]) * settings["block"]
    logged = settings["log_every"]  # pieces end with a line of metrics, from which the next one begins
    total, piece = (round(n / per_update / logged) * logged for n in (steps, PIECE))
    while True:
        lines = train_lines(run)
        done = lines[-1]["update"] if lines else 0
        complete = done >= total or (mark is not None and (recent(run, key) or 0) > mark)
        updates = done if complete else min(total, done // piece * piece + piece)  # a complete run: are these its settings?
        options = [f"--set={name}={value}" for name, value in (values | {"train.updates": updates, "train.validate_every": 0}).items()]
        if subprocess.run([LAPSE, "train", config, "--out", run, "--resume", *options], cwd=ROOT, check=False).returncode != 0:
            sys.exit(f"{run}: not trained to its end; run this again to go on, or mend what lapse says above")
        if complete:
            return


def evaluate(run, greedy):
    file = run.parent / f"{run.name}-{'greedy' if greedy else 'drawn'}.json"
    newest = max((run / "checkpoints").iterdir(), key=lambda path: path.stat().st_mtime)
    if file.exists() and file.stat().st_mtime > newest.stat().st_mtime:
        return json.loads(file.read_text())
    command = [LAPSE, "eval", run, "--json", "--episodes=1000"] + (["--greedy"] if greedy else [])
    made = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    file.write_text(made)
    return json.loads(made)


def summarise(run, key, mark):
    """What the figures show of a run: in training over the last 2 M steps, as in the paper, and of 1,000 episodes with fixed seeds."""
    per_update, lines = steps_of(run), train_lines(run)
    last = [line for line in lines if line["update"] * per_update > lines[-1]["update"] * per_update - WINDOW]
    memory = statistics.mean(layer["memory_mean"] for line in last for layer in line["layers"])
    result = {"steps": lines[-1]["update"] * per_update}
    above = mark is not None and (recent(run, key) or 0) > mark
    result["ended_by"] = f"{key} above {mark} over 2 M steps" if above else "its number of steps"
    result["training"] = {key: recent(run, key), "memory_mean": memory}
    result["curve"] = [
        {"steps": line["update"] * per_update, key: line.get(key), "memory_mean": statistics.mean(layer["memory_mean"] for layer in line["layers"])}
        for line in lines[:: max(1, len(lines) // 100)]
    ]
    for greedy in (False, True):
        found = evaluate(run, greedy)
        result["likeliest actions" if greedy else "drawn actions"] = {
            name: found[name] for name in (key, f"{key}_low", f"{key}_high", "return", "episodes", "seed", "complete")
        } | {"memory_mean": statistics.mean(layer["memory_mean"] for layer in found["layers"])}
    return result


def file_of(name):
    return HERE / "results" / f"{name.replace('/', '-')}.json"


def measured_already(name, config, values, steps, mark):
    """Whether the result of a run with these settings is there, and was made at its end."""
    if not file_of(name).exists():
        return False
    known = json.loads(file_of(name).read_text())
    same = {"config": config, "values": values}.items() <= known.items()
    return same and (known["steps"] >= 0.99 * steps or (mark is not None and known["ended_by"] != "its number of steps"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="experiments whose name contains this")
    parser.add_argument("--list", action="store_true", help="print their names, and how far they are")
    parser.add_argument("--runs", type=pathlib.Path, default=ROOT / "runs" / "rl")
    arguments = parser.parse_args()
    for name, config, values, steps, mark in experiments():
        if arguments.only not in name:
            continue
        run, key = arguments.runs / name, "rooms" if name.startswith("portal") else "success"
        if arguments.list:
            lines = train_lines(run)
            known = ", its result is there" if measured_already(name, config, values, steps, mark) else ""
            begun = f"{lines[-1]['update'] * steps_of(run) / 1e6:.1f} M steps, {key} {recent(run, key)}" if lines else "not begun"
            print(f"{name:32}", begun + known)
            continue
        out = file_of(name)
        if not run.exists() and measured_already(name, config, values, steps, mark):
            print(f"{name}: its result is there, but not the run; remove {out.relative_to(ROOT)} to make both anew")
            continue
        train(run, config, values, steps, mark, key)
        result = {"config": config, "values": values} | summarise(run, key, mark)
        out.parent.mkdir(exist_ok=True)
        out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
