#!/usr/bin/env python3
"""Asks `lapse train --dry-run` of each row of rows.toml what it takes; experiments/paper/run.sh calls it.

    .venv/bin/python experiments/paper/run.py [MODEL...]         # only rows whose model begins so; default: all
    .venv/bin/python experiments/paper/run.py --gpu [MODEL...]   # the same on a GPU, of a part of each batch
    .venv/bin/python experiments/paper/run.py --toml FOLDER      # each row as a file for `lapse train`

Each row's answer is kept in runs/paper, those of a GPU in runs/paper-gpu; once there is one of every row, results/results.json
and table.md are written, or gpu.json and gpu.md. LAPSE is the program, if not build/release/lapse; LAPSE_DATA the folder of texts."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tomllib

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
RUNS = ROOT / "runs" / "paper"
PROGRAM = os.environ.get("LAPSE", ROOT / "build" / "release" / "lapse")
GPU_STREAMS = 64  # at a time, or the whole batch
SECONDS = 6  # of trying a row, besides its first two updates
VOCABULARY = 267735  # of WikiText-103

PAPER = tomllib.loads((HERE / "rows.toml").read_text())
ROWS = PAPER["row"]


def write_words(path, tokens=1_000_000):
    """A text with as many different words as WikiText-103, the i-th most frequent about 1/i as often as the first."""
    words = range(VOCABULARY - 2)  # with <unk> and <eos>
    text = " ".join(" ".join([str(i)] * max(1, tokens // (14 * (i + 1)))) for i in words)
    path.write_text(text)


def dry_run(row, sets, *arguments):
    """What `lapse train --dry-run` prints of the row with these values."""
    config = ROOT / "examples" / f"{row['preset']}.toml"
    sets = [word for value in [*row["set"], *sets] for word in ("--set", value)]
    done = subprocess.run([PROGRAM, "train", config, "--dry-run", "--json", *arguments, *sets], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{row['model']}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def batch_of(row):
    return tomllib.loads((ROOT / "examples" / f"{row['preset']}.toml").read_text())["train"]["batch"]


def settings_here(row, runs, data):
    words = runs / "words.txt"
    if not words.exists():
        write_words(words)
    return [value.format(data=data, words=words) for value in PAPER["presets"][row["preset"]]["here"]]


def measure(row, runs, data):
    """Of the whole batch the estimates, of one part of it the time; none where the part does not fit into memory."""
    here = settings_here(row, runs, data)
    parts, batch = PAPER["presets"][row["preset"]]["parts"], batch_of(row)
    whole = dry_run(row, [*here, f"train.parts={parts}"], "--seconds", "0")
    part = dry_run(row, [*here, f"train.batch={batch // parts}"], "--seconds", str(SECONDS))
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
    }


def measure_on_gpu(row, runs, data):
    """Of a part of the batch, as large as fits: time in bfloat16, and the most memory that its tensors took."""
    here = [*settings_here(row, runs, data), "train.device=cuda", "train.precision=bf16"]
    streams = min(GPU_STREAMS, batch_of(row))
    while True:
        try:
            got = dry_run(row, [*here, f"train.batch={streams}"], "--seconds", str(SECONDS))
            break
        except RuntimeError as error:
            if "memory" not in str(error) or streams == 1:
                raise
            streams //= 2
    if got["updates_tried"] == 0:
        raise RuntimeError(f"{row['model']}: not even one stream fits")
    return {
        "model": row["model"],
        "paper": row["paper"],
        "parameters": got["parameters"],
        "streams": streams // got["parts_tried"],
        "ms": got["ms_per_update"] / got["parts_tried"],
        "peak_memory": got["peak_memory_on_device"],
        "updates_tried": got["updates_tried"],
        "rows_remembered": got["rows_remembered"],
    }


def gpu_table(results):
    lines = ["| model | the paper | streams at a time | ms for them | GB at most | after, rows |", "|---|---|---:|---:|---:|---:|"]
    for r in results:
        lines.append(
            f"| {r['model']} | {r['paper']} | {r['streams']} | {r['ms']:.0f} | {r['peak_memory'] / 1e9:.3g} | "
            f"{r['updates_tried']}, {r['rows_remembered']:,.0f} |"
        )
    return "\n".join(lines) + "\n"


def table(results):
    lines = [
        "| model | the paper | parameters, M (paper) | batch | GB at first, full | s per update | after, rows |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for r in results:
        paper = f" ({r['paper_parameters']})" if r["paper_parameters"] else ""
        tried = r["parts_tried"] > 0
        seconds = f"{r['ms_per_part'] * r['parts'] / 1000:.3g}" if tried else "–"
        rows = f"{r['parts_tried']}, {r['rows_remembered']:,.0f}" if tried else "–"
        lines.append(
            f"| {r['model']} | {r['paper']} | {r['parameters'] / 1e6:.3g}{paper} | {r['batch']} | {r['memory_least'] / 1e9:.3g}, "
            f"{r['memory_most'] / 1e9:.3g} | {seconds} | {rows} |"
        )
    return "\n".join(lines) + "\n"


def name_of(row):
    return re.sub(r"\W+", "-", row["model"]).strip("-")


def write_tomls(folder):
    """Each row as a file: its preset, with the row's values."""
    folder.mkdir(parents=True, exist_ok=True)
    for row in ROWS:
        sets = [word for value in row["set"] for word in ("--set", value)]
        out = folder / f"{name_of(row)}.toml"
        subprocess.run([PROGRAM, "init", row["preset"], *sets, "-o", out], check=True)
        print(out)


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ["--toml"]:
        write_tomls(pathlib.Path(*arguments[1:2]))
        return
    gpu = arguments[:1] == ["--gpu"]
    models = tuple(arguments[gpu:]) or ""
    runs, how, name = (RUNS.with_name("paper-gpu"), measure_on_gpu, "gpu") if gpu else (RUNS, measure, "results")
    show = gpu_table if gpu else table
    runs.mkdir(parents=True, exist_ok=True)
    files = [runs / f"{name_of(row)}.json" for row in ROWS]
    for row, file in zip(ROWS, files):
        if file.exists() or not row["model"].startswith(models):
            continue
        result = how(row, runs, os.environ["LAPSE_DATA"])
        file.write_text(json.dumps(result) + "\n")
        print(show([result]).splitlines()[-1], flush=True)
    if not all(file.exists() for file in files):
        return
    results = [json.loads(file.read_text()) for file in files]
    out = HERE / "results"
    out.mkdir(exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
    (out / ("gpu.md" if gpu else "table.md")).write_text(show(results))
    print(show(results), end="")


if __name__ == "__main__":
    main()
