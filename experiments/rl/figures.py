#!/usr/bin/env python3
"""Figures of experiments/rl/results/*.json: score against mean memory size.

    .venv/bin/python experiments/rl/figures.py
"""

import json
import pathlib

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "lapse"  # the same file for the same numbers
import matplotlib.pyplot as plt  # noqa: E402

RESULTS = pathlib.Path(__file__).parent / "results"
METHODS = {  # how the runs' names begin: label, colour, marker
    "expire_span": ("Expire-Span", "C1", "o"),
    "short_beginning": ("Expire-Span, spans begin at 0.1 L", "C1", "x"),
    "fixed_span": ("fixed span (Transformer-XL)", "C0", "s"),
    "often_expire_span": ("Expire-Span, 64 environments", "C3", "o"),
    "often_fixed_span": ("fixed span, 64 environments", "C2", "s"),
}
FIGURES = {  # score and its label
    "corridor": ("success", "success rate in training"),
    "portal": ("rooms", "rooms reached in training"),
}


def points(name, method):
    """(mean memory size, score) of the method's runs, by memory size."""
    key, _ = FIGURES[name]
    found = []
    for file in RESULTS.glob(f"{name}-{method}*.json"):
        result = json.loads(file.read_text())
        found.append((result["training"]["memory_mean"], result["training"][key]))
    return sorted(found)


def draw(name):
    found = {method: points(name, method) for method in METHODS}
    if not any(found.values()):
        return
    figure, axes = plt.subplots(figsize=(5, 3.4))
    for method, (label, colour, marker) in METHODS.items():
        if some := found[method]:
            line = "-" if method == "fixed_span" else ""  # growing spans, one seed; else several seeds
            axes.plot([x for x, _ in some], [y for _, y in some], marker + line, color=colour, label=label)
    axes.set_xlabel("mean memory size, rows of a layer")
    axes.set_ylabel(FIGURES[name][1])
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(RESULTS / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    for figure_name in FIGURES:
        draw(figure_name)
