#!/usr/bin/env python3
"""One training step of T5-small, batch 8, 512 -> 114 tokens: lapse beside transformers' T5 in eager PyTorch.

    .venv/bin/python bench/t5.py [--updates N] [--threads N] [--json FILE] [--quick]

Both run AdamW with clipped gradients and dropout 0.1, with a vocabulary of 32,128 and plain attention in the decoder
(--method NAME: another one). lapse's time is the median that `lapse train --dry-run` reports, transformers' the median of
its updates. The peak is that of the benchmark `attention`, which must be built (LAPSE_BUILD: the build folder); FLOPs are
those of the shapes: weights 2 forward and 4 backward per use, attention 14 D per head and pair of query and row.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import torch
from transformers import T5Config, T5ForConditionalGeneration

ROOT = pathlib.Path(__file__).resolve().parent.parent
SMALL = {"d": 512, "D": 64, "H": 8, "ff": 2048, "layers": 6, "V": 32128, "batch": 8, "source": 512}
TINY = {"d": 32, "D": 8, "H": 2, "ff": 64, "layers": 1, "V": 400, "batch": 2, "source": 64}


def target_of(source):
    """How many tokens the target has: 15 % noise in spans of 3."""

    def counts(n):
        noise = min(max(round(0.15 * n), 1), n - 1)
        spans = max(1, round(noise / 3))
        return n - noise + spans + 1, noise + spans + 1

    n = 2
    while counts(n + 1)[0] <= source:
        n += 1
    return counts(n)[1]


def gflop(s, target):
    d, inner = s["d"], s["D"] * s["H"]
    read, written = s["batch"] * s["source"], s["batch"] * target
    encoder = 4 * d * inner + 2 * d * s["ff"]
    decoder = 6 * d * inner + 2 * d * s["ff"]  # the cross-attention's keys and values are of the source
    weights = s["layers"] * (encoder * read + decoder * written + 2 * d * inner * read) + d * s["V"] * written
    pairs = s["batch"] * s["layers"] * (s["source"] ** 2 + target * s["source"] + target**2)
    return (6 * weights + 14 * inner * pairs) / 1e9


def peak():
    """What the benchmark `attention` says of the machine, its product peak among it."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "attention.json"
        command = [BUILD / "bench" / "attention", "--case", "full", "--repeat", "1", "--json", path]
        subprocess.run(command + ["--quick"] * arguments.quick, check=True, capture_output=True)
        said = json.loads(path.read_text())
        return {key: said[key] for key in ("processor", "threads", "libtorch", "date", "commit", "quick", "peak")}


def time_transformers(s, target, updates):
    torch.manual_seed(1)
    config = T5Config(
        vocab_size=s["V"], d_model=s["d"], d_kv=s["D"], d_ff=s["ff"], num_layers=s["layers"], num_heads=s["H"],
        decoder_start_token_id=0,
    )  # fmt: skip
    config._attn_implementation = "eager"
    model = T5ForConditionalGeneration(config).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    times = []
    for _ in range(updates + 1):
        source = torch.randint(2, s["V"], (s["batch"], s["source"]))
        labels = torch.randint(2, s["V"], (s["batch"], target))
        start = time.perf_counter()
        optimiser.zero_grad()
        model(input_ids=source, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])  # the first allocates


def time_lapse(s, seconds, method, threads):
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "text.txt"
        text.write_bytes(os.urandom(1 << 20))
        toml = pathlib.Path(folder) / "t5.toml"
        preset = [PROGRAM, "init", "paper-t5-small", "-o", toml]
        subprocess.run(preset, check=True)
        sets = {
            "data.train": text, "data.valid": "", "data.unit": "byte", "data.tokenizer": "",
            "data.sentinels": s["V"] - 258, "model.width": s["d"], "model.head_dim": s["D"], "model.heads": s["H"],
            "model.feed_forward": s["ff"], "model.layers": s["layers"], "model.encoder_layers": s["layers"],
            "forgetting.method": method, "train.batch": s["batch"], "train.parts": 1, "train.block": s["source"],
            "train.threads": threads,
        }  # fmt: skip
        words = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
        command = [PROGRAM, "train", toml, "--dry-run", "--seconds", str(seconds), "--json", *words]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stderr)
        return json.loads(done.stdout)["ms_per_update"] / 1000


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--updates", type=int, default=3, help="of transformers")
parser.add_argument("--seconds", type=float, default=15, help="of lapse's updates")
parser.add_argument("--threads", type=int, default=os.cpu_count())
parser.add_argument("--method", default="fixed_span", help="forgetting.method of lapse's decoder")
parser.add_argument("--json", type=pathlib.Path, help="write the numbers to this file")
parser.add_argument("--quick", action="store_true", help="a tiny model: to see that it works")
arguments = parser.parse_args()
BUILD = pathlib.Path(os.environ.get("LAPSE_BUILD", ROOT / "build" / "release"))
PROGRAM = BUILD / "lapse"
torch.set_num_threads(arguments.threads)
sizes = TINY if arguments.quick else SMALL
target = target_of(sizes["source"])
work = gflop(sizes, target)
before = peak()
result = {"benchmark": "t5", "gflop": work, "target": target, "method": arguments.method}
result["lapse_seconds"] = time_lapse(sizes, 0.1 if arguments.quick else arguments.seconds, arguments.method, arguments.threads)
result["transformers_seconds"] = time_transformers(sizes, target, arguments.updates)
found = max(before, peak(), key=lambda said: said["peak"]["float32"]["gflops"])
result = found | {"threads": arguments.threads} | result
gflops = found["peak"]["float32"]["gflops"]
result["share_of_peak"] = work / result["lapse_seconds"] / gflops
result["speedup"] = result["transformers_seconds"] / result["lapse_seconds"]
print(
    f"T5, {sizes['source']} -> {target} tokens, batch {sizes['batch']}: {work:.0f} GFLOP; peak {gflops:.0f} GFLOP/s\n"
    f"lapse         {1000 * result['lapse_seconds']:8.0f} ms  {100 * result['share_of_peak']:.0f} % of peak\n"
    f"transformers  {1000 * result['transformers_seconds']:8.0f} ms  {result['speedup']:.2f} times as long"
)
if arguments.json:
    arguments.json.write_text(json.dumps(result, indent=2) + "\n")
