#!/usr/bin/env python3
"""Asks `lapse train --dry-run` of each row of rows.toml what it takes; experiments/paper/run.sh calls it.

    .venv/bin/python experiments/paper/run.py [MODEL...]         # only rows whose model begins so; default: all
    .venv/bin/python experiments/paper/run.py --toml FOLDER      # each row as a file for `lapse train`; with LAPSE_DATA=DIR its texts are named

Each row's answer is kept in runs/paper; once there is one of every row, results/results.json and the table are written."""

import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import tomllib

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
RUNS = ROOT / "runs" / "paper"
SECONDS = 6  # of trying a row, besides its first two updates
VOCABULARY = 267735  # of WikiText-103

PAPER = tomllib.loads((HERE / "rows.toml").read_text())
ROWS = PAPER["row"]


def write_words(path, tokens=1_000_000):
    """A text with as many different words as WikiText-103, the i-th most frequent about 1/i as often as the first."""
    words = range(VOCABULARY - 2)  # with <unk> and <eos>
    text = " ".join(" ".join([str(i)] * max(1, tokens // (14 * (i + 1)))) for i in words)
    path.write_text(text)


def dry_run(program, row, sets, *arguments):
    """What `lapse train --dry-run` prints of the row with these values."""
    config = ROOT / "examples" / f"{row['preset']}.toml"
    sets = [word for value in [*row["set"], *sets] for word in ("--set", value)]
    done = subprocess.run([program, "train", config, "--dry-run", "--json", *arguments, *sets], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{row['model']}: {done.stderr.strip()}")
    return json.loads(done.stdout)


@functools.cache
def peak_gflops():
    """What this machine's matrix products reach in float32, GFLOP/s: the best of some."""
    import torch

    a, seconds = torch.ones(2048, 2048), []
    for _ in range(8):
        begun = time.perf_counter()
        a @ a
        seconds.append(time.perf_counter() - begun)
    return round(2 * 2048**3 / min(seconds) / 1e9)


def batch_of(row):
    return tomllib.loads((ROOT / "examples" / f"{row['preset']}.toml").read_text())["train"]["batch"]


def measure(row, data):
    """Of the whole batch the estimates, of one part of it the time; none where the part does not fit into memory."""
    program, preset = ROOT / "build" / "release" / "lapse", PAPER["presets"][row["preset"]]
    words = RUNS / "words.txt"
    if not words.exists():
        write_words(words)
    here = [value.format(data=data, words=words) for value in preset["here"]]
    parts, batch = preset["parts"], batch_of(row)
    whole = dry_run(program, row, [*here, f"train.parts={parts}"], "--seconds", "0")
    part = dry_run(program, row, [*here, f"train.batch={batch // parts}"], "--seconds", str(SECONDS))
    parts *= part.get("parts_tried", 1)  # where not even one of the row's parts fits
    return {
        "model": row["model"],
        "paper": row["paper"],
        "paper_parameters": row.get("parameters"),
        "parameters": whole["parameters"],
        "batch": batch,
        "parts": parts,
        "memory_least": whole["memory_least"],
        "memory_most": whole["memory_most"],
        "parts_tried": part["updates_tried"],
        "ms_per_part": part["ms_per_update"] / part["parts_tried"] if part["updates_tried"] else None,
        "rows_remembered": part.get("rows_remembered"),
        "peak_gflops": peak_gflops(),
    }


def table(results):
    lines = [
        "| model | the paper | parameters, M (paper) | batch | GB at first, full | s per update | after, rows |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for r in results:
        paper = f" ({r['paper_parameters']})" if r["paper_parameters"] else ""
        tried = r["parts_tried"] > 0
        mark = "¹" if "peak_gflops" in r else ""  # rows without it were timed earlier, on another machine
        seconds = f"{r['ms_per_part'] * r['parts'] / 1000:.3g}{mark}" if tried else "–"
        rows = f"{r['parts_tried']}, {r['rows_remembered']:,.0f}" if tried else "–"
        lines.append(
            f"| {r['model']} | {r['paper']} | {r['parameters'] / 1e6:.3g}{paper} | {r['batch']} | {r['memory_least'] / 1e9:.3g}, "
            f"{r['memory_most'] / 1e9:.3g} | {seconds} | {rows} |"
        )
    return "\n".join(lines) + "\n"


def name_of(row):
    return re.sub(r"\W+", "-", row["model"]).strip("-")


def file_of(row):
    return RUNS / f"{name_of(row)}.json"


def texts_of(preset, data, folder):
    """What a preset's files are in the folder `data`: the paper's own where they are all there, else what stands in for them (rows.toml)."""
    named = [value.split("=", 1) for value in PAPER["presets"][preset]["here"]]
    config = tomllib.loads((ROOT / "examples" / f"{preset}.toml").read_text())
    own = {key: config[key.split(".")[0]][key.split(".")[1]] for key, value in named if not value.isdigit()}
    own = {key: data / pathlib.Path(path).relative_to("data") for key, path in own.items()}
    if all(path.exists() for path in own.values()):
        return [f"{key}={path}" for key, path in own.items()]
    print(f"{preset}: {', '.join(str(path) for path in own.values() if not path.exists())}: not there; other texts stand in", file=sys.stderr)
    words = folder / "words.txt"
    if any("{words}" in value for _, value in named) and not words.exists():
        write_words(words)
    return [f"{key}={value.format(data=data, words=words)}" for key, value in named if key in own]


def write_tomls(program, folder, data=None):
    """Each row as a file: its preset, with the row's values. `data`: where its texts are; else their names are the preset's."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {preset: texts_of(preset, data.resolve(), folder.resolve()) if data else [] for preset in PAPER["presets"]}
    for row in ROWS:
        sets = [word for value in [*texts[row["preset"]], *row["set"]] for word in ("--set", value)]
        out = folder / f"{name_of(row)}.toml"
        subprocess.run([program, "init", row["preset"], *sets, "-o", out], check=True)
        print(out)


def main():
    if sys.argv[1:2] == ["--toml"]:
        if len(sys.argv) != 3:
            sys.exit(__doc__)
        data = os.environ.get("LAPSE_DATA")
        write_tomls(ROOT / "build" / "release" / "lapse", pathlib.Path(sys.argv[2]), pathlib.Path(data) if data else None)
        return
    RUNS.mkdir(parents=True, exist_ok=True)
    for row in ROWS:
        if file_of(row).exists() or not row["model"].startswith(tuple(sys.argv[1:]) or ""):
            continue
        if not os.environ.get("LAPSE_DATA"):
            sys.exit("experiments/paper/run.py: LAPSE_DATA is not set; it names the folder of the texts (scripts/data.sh)")
        result = measure(row, os.environ["LAPSE_DATA"])
        file_of(row).write_text(json.dumps(result) + "\n")
        print(table([result]).splitlines()[-1], flush=True)
    if not all(file_of(row).exists() for row in ROWS):
        return
    results = [json.loads(file_of(row).read_text()) for row in ROWS]
    out = HERE / "results"
    out.mkdir(exist_ok=True)
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (out / "table.md").write_text(table(results))
    print(table(results), end="")


if __name__ == "__main__":
    main()
