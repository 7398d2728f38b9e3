#!/usr/bin/env python3
"""Turns the runs of experiments/compare/run.sh into results/: results.json, table.md, methods.svg and budgets.svg.

    .venv/bin/python experiments/compare/summarise.py [RUNS]      # default: runs, with RUNS/enwik8-head and RUNS/compare

Curves come from a run NAME; times and memory from NAME-timing, made on a quiet machine from the trained weights. Where RUNS/compare is
not there, the table and the figures are made again from results.json.
"""

import json
import pathlib
import statistics
import sys

import matplotlib
import numpy

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from run_metrics import eval_summary, summarise  # noqa: E402

METHODS = {
    "enwik8-head/fixed_span_128": "fixed span, L = 128",
    "enwik8-head/fixed_span_512": "fixed span, L = 512",
    "enwik8-head/adaptive_span": "Adaptive-Span, L = 1024",
    "enwik8-head/expire_span": "Expire-Span, L = 1024",
    "enwik8-head/compressive": "Compressive, 256 + 192 averages of 4",
    "compare/selective_attention": "selective attention, L = 512",
    "compare/local_global": "3 local (64), 1 global (512)",
    "compare/strided": "strided: 64, and every 8th of 512",
}
BUDGETED = {
    "selective_attention": "selective attention, its own pruning",
    "h2o": "H2O",
    "tova": "TOVA",
    "sink_window": "sinks + window",
    "local": "window",
    "strided": "strided",
    "local_global": "3 local, 1 global (512)",
}
TRAINED = ("strided", "local_global")  # of the budgets' methods, those with a run of their own


def budgets(runs):
    folder = runs / "compare" / "budgets"
    whole = {name: eval_summary(folder / f"{name}.json") for name in ("standard", "selective_attention")}
    some = {
        name: {int(file.stem.split("-")[1]): eval_summary(file) for file in sorted(folder.glob(f"{name}-*.json"), key=lambda f: int(f.stem.split("-")[1]))}
        for name in BUDGETED
    }
    return {"unpruned": whole, "budgets": some}


def final_bpb(r):
    return list(r["validation_bpb"].values())[-1]


def trained(results):
    """The runs of TRAINED among the methods, by name."""
    return {name: r for r in results["methods"] for name in TRAINED if r["config"].endswith(f"/{name}.toml")}


def with_perplexity(bpb):
    return f"{bpb:.3f} ({2**bpb:.2f})"


def table(results):
    best = min(final_bpb(r) for r in results["methods"])
    rows = ["| method | bits per byte | memory size | ms per update | peak memory |", "|---|---|---|---|---|"]
    for r in sorted(results["methods"], key=final_bpb):
        bpb = final_bpb(r)
        mark = "**" if bpb == best else ""
        rows.append(f"| {r['method']} | {mark}{bpb:.3f}{mark} | {statistics.mean(r['memory_mean_per_layer']):.0f} | {r['ms_per_update_median']:.0f} | {r['peak_memory_bytes'] / 1e6:.0f} MB |")
    sizes = sorted({b for points in results["budgets"].values() for b in points})
    rows += ["", "Memory budgets at inference: bits per byte and, in brackets, perplexity per byte, read in 64 streams."]
    rows += ["", "| rows that a layer may hold (H2O: each head; 3 local, 1 global: a local one) | " + " | ".join(map(str, sizes)) + " | all |", "|---|" + "---|" * (len(sizes) + 1)]
    for name, points in results["budgets"].items():
        whole = results["unpruned"]["selective_attention" if name == "selective_attention" else "standard"]["bpb"]
        rows.append(f"| {BUDGETED[name]} | " + " | ".join(with_perplexity(points[b]["bpb"]) if b in points else "" for b in sizes) + f" | {with_perplexity(whole)} |")
    rows += ["", "The same patterns where the model was trained with them; these are read in 16 streams, as in training."]
    rows += ["", "| trained | bits per byte (perplexity) | memory size, mean of the layers |", "|---|---|---|"]
    for r in trained(results).values():
        rows.append(f"| {r['method']} | {with_perplexity(final_bpb(r))} | {statistics.mean(r['memory_mean_per_layer']):.0f} |")
    return "\n".join(rows) + "\n"


def draw(axes, path):
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
    axes.figure.savefig(path, metadata={"Date": None})


def figures(results, out):
    plt.rcParams["svg.hashsalt"] = "lapse"  # the same file for the same numbers
    _, axes = plt.subplots(figsize=(6, 3.8), layout="constrained")
    for r in results["methods"]:
        axes.plot(list(r["validation_bpb"]), list(r["validation_bpb"].values()), marker="o", markersize=3, label=f"{r['method']}; memory {statistics.mean(r['memory_mean_per_layer']):.0f}")
    axes.set(xlabel="update", ylabel="validation, bits per byte", title="enwik8-head: one base model, every method", ylim=(None, 4))
    draw(axes, out / "methods.svg")
    _, axes = plt.subplots(figsize=(7, 5), layout="constrained")
    colours = {}
    for name, points in results["budgets"].items():
        (line,) = axes.plot([p["memory_mean"] for p in points.values()], [p["bpb"] for p in points.values()], marker="o", markersize=3, label=BUDGETED[name])
        colours[name] = line.get_color()
    for name, r in trained(results).items():
        style = {"marker": "*", "markersize": 10, "linestyle": "none", "color": colours[name], "label": f"trained: {r['method']}"}
        axes.plot(statistics.mean(r["memory_mean_per_layer"]), final_bpb(r), **style)
    for name, style in (("standard", "--"), ("selective_attention", ":")):
        axes.axhline(results["unpruned"][name]["bpb"], color="grey", linestyle=style, linewidth=1, label=f"all rows, {'fixed span, L = 512' if name == 'standard' else 'selective attention'}")
    axes.set(xlabel="rows in memory, mean of the layers", ylabel="validation, bits per byte", xscale="log", title="Memory budgets at inference")
    sizes = sorted({b for points in results["budgets"].values() for b in points})
    axes.set_xticks(sizes, map(str, sizes))
    axes.minorticks_off()
    axes.secondary_yaxis("right", functions=(numpy.exp2, lambda y: numpy.log2(numpy.maximum(y, 1)))).set_ylabel("perplexity per byte")
    draw(axes, out / "budgets.svg")


def with_numbers(found):
    """JSON's keys are strings; updates and budgets are numbers."""
    return {int(key) if key.isdigit() else key: value for key, value in found.items()}


def main():
    runs = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "runs")
    out = HERE / "results"
    out.mkdir(exist_ok=True)
    try:
        if (runs / "compare").exists():
            methods = [{"method": METHODS[name]} | summarise(runs / name, f"experiments/{name}.toml") for name in METHODS]
            (out / "results.json").write_text(json.dumps({"methods": methods, **budgets(runs)}, indent=1) + "\n")
        results = json.loads((out / "results.json").read_text(), object_hook=with_numbers)
    except FileNotFoundError as error:
        sys.exit(f"summarise.py: {error.filename} is missing; experiments/compare/run.sh makes it")
    (out / "table.md").write_text(table(results))
    figures(results, out)
    print(table(results), end="")


if __name__ == "__main__":
    main()
