#!/usr/bin/env python3
"""Figures and tables of experiments/rl/results/*.json: score against mean memory size.

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


# The lines of the tables: how the runs' names begin, before SEED; what it is called.
SPANS = {"corridor": (10, 25, 50, 100, 150, 200), "portal": (10, 25, 50, 100)}
LINES = {
    "corridor": {f"fixed_span_{span}": f"fixed span {span}" for span in SPANS["corridor"]}
    | {"expire_span": "Expire-Span, spans begin at 0.9 L", "short_beginning": "Expire-Span, spans begin at 0.1 L"},
    "portal": {f"fixed_span_{span}": f"fixed span {span}" for span in SPANS["portal"]}
    | {"expire_span": "Expire-Span"}
    | {f"often_fixed_span_{span}": f"64 environments: fixed span {span}" for span in SPANS["portal"]}
    | {"often_expire_span": "64 environments: Expire-Span"},
}


def corridor_columns(result):
    greedy = result["likeliest actions"]["success"]
    return f"{result['steps'] / 1e6:.3g} M", f"{100 * result['training']['success']:.1f} %", f"{100 * greedy:.1f} %"


def portal_columns(result):
    greedy = result["likeliest actions"]
    return f"{result['training']['rooms']:.1f}", f"{greedy['rooms']:.1f} ({greedy['rooms_low']:.1f} to {greedy['rooms_high']:.1f})"


COLUMNS = {"corridor": (("steps", "success", "greedy"), corridor_columns), "portal": (("rooms", "greedy"), portal_columns)}


def seed_of(file):
    return int(file.stem.rsplit("-", 1)[1])


def table(name):
    """A line for each run: what docs/environments.md shows."""
    headings, columns = COLUMNS[name]
    lines = [["", "seed", *headings, "mean memory, rows of a layer"]]
    for beginning, title in LINES[name].items():
        for file in sorted(RESULTS.glob(f"{name}-{beginning}-*.json"), key=seed_of):
            result = json.loads(file.read_text())
            lines.append([title, str(seed_of(file)), *columns(result), f"{result['training']['memory_mean']:.1f}"])
            title = ""
    rows = [f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines]
    return "\n".join([rows[0], "|---" * len(lines[0]) + "|", *rows[1:]]) + "\n"


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
    (RESULTS / "table.md").write_text("\n".join(table(name) for name in FIGURES))
    print((RESULTS / "table.md").read_text(), end="")
