"""The figure of an experiment whose runs have the same positions, T5's buckets of ages: a loss against mean memory size.

An experiment's figure.py calls `draw`.
"""

import json
import re

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "lapse"  # the same file for the same numbers
import matplotlib.pyplot as plt  # noqa: E402

METHODS = {
    "fixed_span": ("fixed span", "C0", "s"),
    "eq_8": ("Expire-Span, Eq. 8", "C5", "P"),
    "adaptive_span": ("Adaptive-Span", "C4", "D"),
    "local_global": ("three short layers, one long", "C3", "v"),
    "only_ramp": ("ramp without spans", "C2", "^"),
    "expire_span": ("Expire-Span", "C1", "o"),
}
# Of one seed a line; of others their points.
SEEDS = ({}, {"linestyle": "", "markerfacecolor": "none"}, {"linestyle": "", "alpha": 0.5})


def seed_of(name):
    """Of names that say it only if it is not 1: "eq_8", "eq_8-2"."""
    found = re.search(r"-(\d)$", name)
    return int(found[1]) if found else 1


def points(results, runs, key, seed):
    """(mean memory size, loss) of these runs of one seed, by memory size."""
    read = [json.loads(file.read_text())["evaluation"]["test"] for file in results.glob(f"{runs}.json") if seed_of(file.stem) == seed]
    return sorted((one["memory_mean"], one[key]) for one in read)


def draw(results, key, name, runs="{method}*_buckets-{seed}"):
    """results/memory.svg: `key` of an evaluation, which the axis calls `name`. `runs`: what they are called."""
    figure, axes = plt.subplots(figsize=(6.8, 3.4))
    for method, (label, colour, marker) in METHODS.items():
        for seed, style in enumerate(SEEDS, 1):
            if found := points(results, runs.format(method=method, seed=seed), key, seed):
                axes.plot([x for x, _ in found], [y for _, y in found], marker=marker, color=colour, label=f"{label}, seed {seed}", **style)
    axes.set_xscale("log")
    axes.set_xticks((16, 32, 64, 128, 256, 512), ("16", "32", "64", "128", "256", "512"))
    axes.set_xticks((), minor=True)
    axes.set_xlabel("mean memory size, rows of a layer")
    axes.set_ylabel(f"{name}, test")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.tight_layout()
    figure.savefig(results / "memory.svg", metadata={"Date": None})
