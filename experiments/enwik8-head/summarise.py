#!/usr/bin/env python3
"""Turns the runs of this experiment into results/: one JSON per run, the table and the figure that docs/results.md shows.

    .venv/bin/python experiments/enwik8-head/summarise.py [RUNS]      # default: runs/enwik8-head

Curves come from RUNS/NAME. Times and memory come from RUNS/NAME-timing where that run exists (made on a quiet machine by
experiments/enwik8-head/run.sh), else from RUNS/NAME.
"""

import json
import pathlib
import statistics
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from run_metrics import summarise  # noqa: E402

TITLES = {
    "expire_span": "(a) Expire-Span, L = 1024",
    "fixed_span_128": "(b) fixed span, L = 128",
    "fixed_span_512": "(c) fixed span, L = 512",
    "adaptive_span": "(d) Adaptive-Span, L = 1024",
    "compressive": "(e) Compressive, 256 + 192 averages of 4",
}


def table(results):
    updates = sorted({u for r in results.values() for u in r["validation_bpb"]})
    rows = ["| | " + " | ".join(TITLES[name] for name in results) + " |", "|---|" + "---|" * len(results)]
    for u in updates:
        rows.append(f"| validation bits per byte, update {u} | " + " | ".join(f"{r['validation_bpb'].get(u, float('nan')):.3f}" for r in results.values()) + " |")
    rows.append("| memory size, mean of the layers | " + " | ".join(f"{statistics.mean(r['memory_mean_per_layer']):.0f}" for r in results.values()) + " |")
    rows.append("| memory size by layer | " + " | ".join(", ".join(f"{m:.0f}" for m in r["memory_mean_per_layer"]) for r in results.values()) + " |")
    rows.append("| ms per update (median) | " + " | ".join(f"{r['ms_per_update_median']:.0f}" for r in results.values()) + " |")
    rows.append("| tokens/s (median) | " + " | ".join(f"{r['tokens_per_second_median']:,}" for r in results.values()) + " |")
    rows.append("| peak memory, MB | " + " | ".join(f"{r['peak_memory_bytes'] / 1e6:.0f}" for r in results.values()) + " |")
    return "\n".join(rows) + "\n"


def figure(results, path):
    plt.rcParams["svg.hashsalt"] = "lapse"  # the same file for the same numbers
    fig, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for name, r in results.items():
        memory = statistics.mean(r["memory_mean_per_layer"])
        axes.plot(list(r["validation_bpb"]), list(r["validation_bpb"].values()), marker="o", markersize=3, label=f"{TITLES[name]}; memory {memory:.0f}")
    axes.set(xlabel="update", ylabel="validation, bits per byte", title="enwik8-head, 0.86 M parameters")
    axes.grid(alpha=0.3)
    axes.legend()
    fig.savefig(path, metadata={"Date": None})


def main():
    runs = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "runs/enwik8-head")
    results = {name: summarise(runs / name, f"experiments/enwik8-head/{name}.toml") for name in TITLES if (runs / name / "metrics.jsonl").exists()}
    if not results:
        sys.exit(f"{runs}: no run of this experiment; experiments/enwik8-head/run.sh makes them")
    out = HERE / "results"
    out.mkdir(exist_ok=True)
    for name, r in results.items():
        (out / f"{name}.json").write_text(json.dumps(r, indent=2) + "\n")
    (out / "table.md").write_text(table(results))
    figure(results, out / "validation.svg")
    print(table(results), end="")


if __name__ == "__main__":
    main()
