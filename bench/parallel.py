#!/usr/bin/env python3
"""Processes that share a batch: W of one thread each, started by torchrun, against one process of W threads.

    .venv/bin/python bench/parallel.py [--ranks W] [--updates N] [--rounds N] [--json FILE] [--quick]

The model is that of step 1 of the benchmark `step` (8 layers of width 256, 8 streams of 256), with a fixed span as long as its
memory. Both train on the same random bytes; what runs first takes turns. Times are the medians of the updates' times that
metrics.jsonl has, without the first; exchange is the part of an update in which gradients are added up, waiting included.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import machine

ROOT = pathlib.Path(__file__).resolve().parent.parent
LAPSE = pathlib.Path(os.environ.get("LAPSE_BUILD", ROOT / "build" / "release")).resolve() / "lapse"
CONFIG = """
[data]
path = "bytes"
[model]
layers = {layers}
width = {width}
heads = {heads}
feed_forward = {feed_forward}
[forgetting]
method = "fixed_span"
[fixed_span]
max_span = {span}
[train]
batch = {batch}
block = {block}
updates = {updates}
log_every = 1
validate_every = 0
checkpoint_every = 0
"""
QUICK = {"layers": 1, "width": 16, "heads": 2, "feed_forward": 32, "span": 16, "batch": 4, "block": 8}


def lines_of(run):
    """Of the updates after those that fill the memory."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()][arguments.warm :]


def train(folder, name, command, threads):
    run = folder / name
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": "lo"}
    subprocess.run([*command, "train", folder / "config.toml", "--out", run, "--quiet"], check=True, env=environment, cwd=folder)
    lines = lines_of(run)
    (folder / name).rename(folder / f"{name}-{os.urandom(4).hex()}")
    return lines


def median(lines, key):
    return statistics.median(line[key] for line in lines)


def main():
    shape = QUICK if arguments.quick else STEP_1
    found = {"one process": [], "ranks": [], "bytes": 0}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "bytes").write_bytes(os.urandom(2_000_000))
        (folder / "config.toml").write_text(CONFIG.format(updates=arguments.warm + arguments.updates, **shape))
        said = subprocess.run([LAPSE, "train", folder / "config.toml", "--dry-run", "--seconds", "0", "--json"], check=True, capture_output=True, cwd=folder)
        found["bytes"] = 4 * json.loads(said.stdout)["parameters"]
        launcher = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={arguments.ranks}", "--no-python", LAPSE]
        for _ in range(arguments.rounds):
            found["one process"] += train(folder, "one", [LAPSE], arguments.ranks)
            found["ranks"] += train(folder, "ranks", launcher, 1)
    one, ranks = median(found["one process"], "ms_per_update"), median(found["ranks"], "ms_per_update")
    exchange = median(found["ranks"], "exchange_ms_per_update")
    result = {
        "benchmark": "parallel", **machine.about(arguments.ranks, arguments.quick), "model": shape, "ranks": arguments.ranks, "updates": len(found["ranks"]),
        "gradient_bytes": found["bytes"],
        "one_process_ms": one, "ranks_ms": ranks, "efficiency": one / ranks, "exchange_ms": exchange, "exchange_share": exchange / ranks,
        "memory_of_processes": found["ranks"][-1]["memory_of_processes"], "memory_of_one": found["one process"][-1]["resident_memory"],
    }  # fmt: skip
    print(f"one process of {arguments.ranks} threads  {one:8.1f} ms an update")
    print(f"{arguments.ranks} processes of 1 thread   {ranks:8.1f} ms an update: efficiency {one / ranks:.2f}, exchange {exchange:.1f} ms")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


STEP_1 = {"layers": 8, "width": 256, "heads": 4, "feed_forward": 1024, "span": 512, "batch": 8, "block": 256}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--updates", type=int, default=6)
    parser.add_argument("--warm", type=int, default=4, help="updates before them, that fill the memory")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true", help="a tiny model, to see that it works")
    arguments = parser.parse_args()
    main()
