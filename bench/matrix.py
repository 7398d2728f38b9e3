#!/usr/bin/env python3
"""The mean masking F over many documents against reading them: lapse inspect --matrix masking beside lapse eval.

    .venv/bin/python bench/matrix.py [--documents N] [--repeats N] [--threads N] [--json FILE] [--quick]

The model is as large as the paper's of section 5 at d = 4 (4 layers of width 256, 4 heads, windows of 512), but not that model: the norm is LayerNorm
after each layer's parts and the feed-forward network a plain one of 1,024, where the paper has RMSNorm before them and SwiGLU. Its weights are
random; each document is random letters and spaces and fills its window. Both commands read the same documents and take turns. Times are of the whole processes, medians of the
repeats. LAPSE_BUILD: the build folder.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import tempfile
import time

import machine

ROOT = pathlib.Path(__file__).resolve().parent.parent
LAPSE = pathlib.Path(os.environ.get("LAPSE_BUILD", ROOT / "build" / "release")).resolve() / "lapse"
MODEL = {"layers": 4, "width": 256, "heads": 4, "feed_forward": 1024, "window": 512, "batch": 16}
TINY = {"layers": 2, "width": 16, "heads": 2, "feed_forward": 32, "window": 32, "batch": 4}
CONFIG = """
[data]
path = "documents.txt"
documents = "lines"
[model]
layers = {layers}
width = {width}
heads = {heads}
feed_forward = {feed_forward}
positions = "absolute"
[forgetting]
method = "selective_attention"
[selective_attention]
max_span = {window}
[train]
batch = {batch}
block = {window}
updates = 1
validate_every = 0
"""


def seconds(*command):
    start = time.perf_counter()
    subprocess.run([str(word) for word in command], check=True, capture_output=True)
    return time.perf_counter() - start


def main():
    model = TINY if arguments.quick else MODEL
    documents = min(arguments.documents, 8) if arguments.quick else arguments.documents
    threads = ["--threads", arguments.threads]
    read, drawn = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        draw = random.Random(1)
        lines = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz ", k=model["window"] + 8)) for _ in range(documents)]
        (folder / "documents.txt").write_text("\n".join(lines) + "\n")
        (folder / "config.toml").write_text(CONFIG.format(**model))
        seconds(LAPSE, "train", folder / "config.toml", "--out", folder / "run", "--quiet", *threads)
        text = ["--data", folder / "documents.txt", "--split", "all", *threads]
        for _ in range(arguments.repeats):
            read.append(seconds(LAPSE, "eval", folder / "run", *text, "--json"))
            drawn.append(seconds(LAPSE, "inspect", folder / "run", *text, "--matrix", "masking", "--documents", documents, "-o", folder / "f.json"))
        matrix = json.loads((folder / "f.json").read_text())
    if matrix["documents"] != documents:
        raise SystemExit(f"matrix.py: the means are of {matrix['documents']} documents, not of {documents}")
    once, mean = statistics.median(read), statistics.median(drawn)
    result = {
        "benchmark": "matrix", **machine.about(arguments.threads, arguments.quick), "model": model, "documents": documents, "repeats": arguments.repeats,
        "eval_seconds": once, "matrix_seconds": mean, "readings": mean / once,
    }  # fmt: skip
    print(f"{documents} documents of {model['window']} tokens: read once {once:.2f} s, mean F of each layer {mean:.2f} s, {mean / once:.2f} readings")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=pathlib.Path, help="write the numbers to this file")
    parser.add_argument("--quick", action="store_true", help="a tiny model: to see that it works")
    arguments = parser.parse_args()
    main()
