#!/usr/bin/env python3
"""Figures of experiments/rl/results/*.json: score against mean memory size (Corridor, Portal), or against length (T-Maze).

    .venv/bin/python experiments/rl/figures.py
"""

import json
import pathlib

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "lapse"  # the same file for the same numbers
import matplotlib.pyplot as plt  # noqa: E402

RESULTS = pathlib.Path(__file__).parent / "results"
METHODS = {"expire_span": ("Expire-Span", "C1", "o"), "fixed_span": ("fixed span (Transformer-XL)", "C0", "s")}
FIGURES = {  # score, its label, what it is shown against
    "corridor": ("success", "success rate in training", "memory"),
    "portal": ("rooms", "rooms reached in training", "memory"),
    "t_maze": ("success", "success rate in training", "length"),
}


def points(name, method):
    """(x, score, result) of the method's runs, by x."""
    key, _, against = FIGURES[name]
    found = []
    for file in RESULTS.glob(f"{name}-{method}*.json"):
        result = json.loads(file.read_text())
        x = result["training"]["memory_mean"] if against == "memory" else result["values"]["t_maze.length"]
        found.append((x, result["training"][key], result))
    return sorted(found, key=lambda point: point[0])


def draw(name):
    found = {method: points(name, method) for method in METHODS}
    if not any(found.values()):
        return
    figure, axes = plt.subplots(figsize=(5, 3.4))
    for method, (label, colour, marker) in METHODS.items():
        if some := found[method]:
            line = "" if method == "expire_span" and FIGURES[name][2] == "memory" else "-"
            axes.plot([x for x, *_ in some], [y for _, y, _ in some], marker + line, color=colour, label=label)
    axes.set_xlabel("mean memory size, rows of a layer" if FIGURES[name][2] == "memory" else "length of the corridor")
    axes.set_ylabel(FIGURES[name][1])
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(RESULTS / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    for figure_name in FIGURES:
        draw(figure_name)
