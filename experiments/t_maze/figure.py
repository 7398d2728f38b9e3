#!/usr/bin/env python3
"""The figure of experiments/t_maze/results/*.json: success against the corridor's length, and the memory held.

    .venv/bin/python experiments/t_maze/figure.py
"""

import json
import pathlib

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "lapse"  # the same file for the same numbers
import matplotlib.pyplot as plt  # noqa: E402

RESULTS = pathlib.Path(__file__).parent / "results"
LENGTHS = (50, 100, 250, 500, 1000, 1500)  # what the axes name
ROWS = (20, 50, 100, 200, 500)
SERIES = {  # smaller signs over larger ones: two succeed everywhere
    "fixed_span": ("fixed span, the whole episode", "C0", "s", 9),
    "fixed_span_64": ("fixed span of 64", "C7", "^", 6),
    "expire_span": ("Expire-Span", "C1", "o", 5),
}


def points(series):
    """(length, success, mean memory size) of a series' runs, by length."""
    found = []
    for file in RESULTS.glob(f"{series}-*.json"):
        result = json.loads(file.read_text())
        read = result["evaluation"]["greedy"]
        found.append((result["values"]["t_maze.length"], read["success"], read["memory_mean"]))
    return sorted(found)


def main():
    figure, (success, memory) = plt.subplots(1, 2, figsize=(8, 3.2))
    for series, (label, colour, marker, size) in SERIES.items():
        found = points(series)
        for axes, column in ((success, 1), (memory, 2)):
            axes.plot([one[0] for one in found], [one[column] for one in found], f"{marker}-", color=colour, label=label, markersize=size)
    for axes in (success, memory):
        axes.set_xscale("log")
        axes.set_xticks(LENGTHS, [str(length) for length in LENGTHS], fontsize=8)
        axes.set_xticks([], minor=True)
        axes.set_xlabel("length of the corridor")
        axes.grid(alpha=0.3)
    success.set_ylabel("success, likeliest actions")
    success.set_ylim(0, 1.05)
    memory.set_ylabel("mean memory size, rows of a layer")
    memory.set_yscale("log")
    memory.set_yticks(ROWS, [str(rows) for rows in ROWS])
    memory.set_yticks([], minor=True)
    success.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(RESULTS / "t_maze.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
