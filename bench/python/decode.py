#!/usr/bin/env python3
"""One new token of a Llama-shaped model of 135 M parameters (30 layers, width 576, 9 heads, 3 key heads; random weights)
after so many tokens of context: lapse.hf.Cache with each method, and transformers' DynamicCache, in one run.

    .venv/bin/python bench/python/decode.py [--context 4096 16384] [--budget 512] [--tokens 20] [--methods NAME ...] [--quick] [--out FILE]

Caches are filled with random rows, as they are after reading the context: what rows hold changes no time. The paths take
turns, token by token; `resident` is by how much a cache made the process grow. Needs the package lapse (pip install .)."""

import argparse
import datetime
import json
import pathlib
import statistics
import subprocess
import sys
import time

METHODS = [
    "DynamicCache",
    "full",
    "local",
    "sink_window",
    "strided",
    "local_global",
    "h2o",
    "tova",
    "selective_attention",
]
SHAPE = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "tie_word_embeddings": True,
    "max_position_embeddings": 32768,
}


def resident():
    """Bytes."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmRSS")


def fill(cache, context, budget):
    """Rows as after `context` tokens, read 512 at a time; of methods that choose by what is read the newest `budget`, or where
    heads choose for themselves the newest half of it, and for each head other older ones: the most that a layer can hold."""
    import torch

    from lapse.methods import GONE

    heads, half = SHAPE["num_key_value_heads"], budget // 2
    normal = lambda n: {"key": torch.randn(1, n, 3, 64), "value": torch.randn(1, n, 3, 64)}
    for i in range(SHAPE["num_hidden_layers"]):
        if not hasattr(cache, "rows"):
            cache.update(torch.randn(1, 3, context, 64), torch.randn(1, 3, context, 64), i)
            continue
        memory = cache.layers[i].memory
        most = half + heads * (budget - 1 - half) if memory.method.state_by_head else budget - 1
        first = max(0, context - most) if memory.method.state else 0
        for at in range(first, context, 512):
            n = min(512, context - at)
            time_of = torch.arange(at, at + n)[None]
            state = memory.method.fresh(time_of, SHAPE["num_key_value_heads"], torch.float32)
            for name in {"score", "masking"} & state.keys():
                state[name].uniform_()
            if "logit" in state:
                others = (time_of < context - half)[..., None] & (time_of[..., None] % heads != torch.arange(heads))
                state["logit"].masked_fill_(others, GONE)
            memory.table.append({**normal(n), **state}, time_of, memory.method.until(time_of, {}))
            memory.next = torch.tensor([at + n])
            memory.table.release(memory.next, n)
        memory.seen = context


def measure(methods, context, budget, tokens):
    """A token of each path in turn, `tokens` times over, so that a shared machine's moods meet all of them alike."""
    import torch
    from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

    import lapse.hf

    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SHAPE)).eval()
    token = torch.tensor([[7]])
    caches, grown, times = {}, {}, {method: [] for method in methods}

    def step(method):
        model.set_attn_implementation("sdpa" if method == "DynamicCache" else "lapse")
        start = time.perf_counter()
        model(token, past_key_values=caches[method])
        return (time.perf_counter() - start) * 1e3

    with torch.no_grad():
        model(token)  # what the first call sets up is no cache's
        # The small ones first, which the allocator then gives nothing that a large one left.
        for method in sorted(methods, key=lambda m: (m == "DynamicCache", m == "full", m == "local_global")):
            before = resident()
            if method == "DynamicCache":
                caches[method] = DynamicCache(config=model.config)
            else:
                caches[method] = lapse.hf.Cache(model, method, 0 if method == "full" else budget)
            fill(caches[method], context, budget)
            step(method), step(method)
            grown[method] = resident() - before
        for _ in range(tokens):
            for method in methods:
                times[method].append(step(method))
    for method in methods:
        cache = caches[method]
        result = {
            "method": method,
            "context": context,
            "ms": statistics.median(times[method]),
            "resident": grown[method],
        }
        if "DynamicCache" in methods:
            shares = [own / full for own, full in zip(times[method], times["DynamicCache"])]
            result["of_dynamic"] = statistics.median(shares)
        if method == "DynamicCache":
            bytes_ = sum(x.nbytes for layer in cache.layers for x in (layer.keys, layer.values))
            yield result | {"cache_bytes": bytes_, "rows": context}
        else:
            yield result | {"cache_bytes": cache.nbytes(), "rows": max(max(rows) for rows in cache.rows())}


def commit():
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, cwd=pathlib.Path(__file__).parent
    )
    return done.stdout.strip()


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--context", type=int, nargs="+", default=[4096, 16384])
    parser.add_argument("--budget", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=20)
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true", help="to see that it works: a short context, two tokens")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.context, arguments.tokens, arguments.budget = [64], 2, 16
    import torch

    results = []
    print(f"{'context':>8} {'cache':<20} {'ms':>8} {'of DynamicCache':>16} {'cache MB':>9} {'resident MB':>12}")
    for context in arguments.context:
        for result in measure(arguments.methods, context, arguments.budget, arguments.tokens):
            results.append(result)
            share = f"{result['of_dynamic']:.2f}" if "of_dynamic" in result else ""
            sizes = f"{result['cache_bytes'] / 1e6:>9.1f} {result['resident'] / 1e6:>12.1f}"
            print(f"{context:>8} {result['method']:<20} {result['ms']:>8.1f} {share:>16} {sizes}", flush=True)
    if arguments.out:
        told = {"benchmark": "python_decode", "processor": processor(), "threads": torch.get_num_threads()}
        told |= {"libtorch": torch.__version__.split("+")[0], "date": str(datetime.date.today()), "commit": commit()}
        told |= {"quick": arguments.quick, "budget": arguments.budget, "results": results}
        arguments.out.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
