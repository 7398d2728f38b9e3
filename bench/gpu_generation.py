#!/usr/bin/env python3
"""What a token of `lapse generate` takes on a GPU, with CUDA graphs and without: the paper's enwik8 model after two
updates, in bfloat16, one stream, the first steps included.

  bench/gpu_generation.py [--out FILE] [--device cuda] [--quick]

LAPSE names the program, if not build/release/lapse. --quick: a small model and few tokens, to see that this works."""

import argparse
import datetime
import json
import os
import pathlib
import random
import subprocess
import tempfile

import machine

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = os.environ.get("LAPSE", ROOT / "build" / "release" / "lapse")
WORDS = "the of and to in that was his he it with is for as had you not be her on at by which have or from this".split()
SETTINGS = ["expire_span.max_span=4096", "selective_attention.max_span=2048", "train.batch=4", "train.updates=2",
            "train.validate_every=0", "train.validation_streams=2"]  # fmt: skip
SMALL = ["model.width=32", "model.layers=2", "model.heads=2", "model.feed_forward=64", "train.block=32",
         "expire_span.max_span=64", "selective_attention.max_span=64"]  # fmt: skip
TOKENS = {True: 2500, False: 400}  # with graphs, without


def run(*arguments, **environment):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, env=os.environ | environment)
    if done.returncode != 0:
        raise SystemExit(f"gpu_generation: {done.stderr.strip()}")
    return done.stdout


def measure(method, folder, options):
    """One line with graphs, and one without."""
    sets = [*SETTINGS, *(SMALL if options.quick else []), f"data.path={folder}/text.txt", f"forgetting.method={method}",
            f"train.device={options.device}"]  # fmt: skip
    trained = folder / method
    run("train", ROOT / "examples" / "paper-enwik8.toml", "--out", trained, "--quiet", *(w for s in sets for w in ("--set", s)))
    for graphs in (True, False):
        tokens = 40 if options.quick else TOKENS[graphs]
        precision = ["--precision", "bf16"] if options.device != "cpu" else []  # not every processor multiplies it
        got = json.loads(run("generate", trained, "--device", options.device, *precision, "--tokens", tokens, "--temperature", "0",
                             "--prompt", "the of and ", "--json", LAPSE_GRAPHS=str(int(graphs))))  # fmt: skip
        yield {"method": method, "graphs": graphs, "tokens": len(got["tokens"]), "ms_per_token": got["ms_per_token"],
               "rows_in_a_layer": max(got["memory_sizes"]), "memory_bytes": got["memory_bytes"]}  # fmt: skip


def card(device):
    import torch
    import triton

    name = torch.cuda.get_device_name() if device.startswith("cuda") else device
    return {"card": name, "torch": torch.__version__, "triton": triton.__version__, "cuda": torch.version.cuda,
            "date": datetime.date.today().isoformat(), "commit": machine.commit()}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "gpu_generation.json")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    draw, results = random.Random(1), []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text.txt").write_text(" ".join(draw.choices(WORDS, k=120_000)))
        for method in ("expire_span", "selective_attention"):
            for line in measure(method, folder, options):
                results.append(line)
                print(line, flush=True)
    data = {"benchmark": "gpu_generation", "quick": options.quick, "machine": card(options.device), "results": results}
    options.out.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
