#!/usr/bin/env python3
"""The figure of experiments/wikitext2/results/*.json (the paper's Figure 10 at reduced size): perplexity per word against
mean memory size, positions alike.

    .venv/bin/python experiments/wikitext2/figure.py
"""

import json
import pathlib

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "lapse"  # the same file for the same numbers
import matplotlib.pyplot as plt  # noqa: E402

RESULTS = pathlib.Path(__file__).parent / "results"
METHODS = {"fixed_span": ("fixed span", "C0", "s"), "expire_span": ("Expire-Span", "C1", "o")}


def points(method, seed):
    """(mean memory size, perplexity) of the method's runs with buckets of ages, by memory size."""
    read = [json.loads(file.read_text())["evaluation"]["test"] for file in RESULTS.glob(f"{method}_*_buckets-{seed}.json")]
    return sorted((one["memory_mean"], one["ppl"]) for one in read)


def main():
    figure, axes = plt.subplots(figsize=(5, 3.4))
    for method, (label, colour, marker) in METHODS.items():
        for seed, line in ((1, "-"), (2, "")):
            if found := points(method, seed):
                mark = {"markerfacecolor": "none"} if seed > 1 else {}
                axes.plot([x for x, _ in found], [y for _, y in found], marker + line, color=colour, label=f"{label}, seed {seed}", **mark)
    axes.set_xscale("log")
    axes.set_xticks((16, 32, 64, 128, 256, 512), ("16", "32", "64", "128", "256", "512"))
    axes.set_xticks((), minor=True)
    axes.set_xlabel("mean memory size, rows of a layer")
    axes.set_ylabel("perplexity per word, test")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(RESULTS / "memory.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
