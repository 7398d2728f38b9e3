#!/usr/bin/env python3
"""Figures of experiments/documents/results/*.json: fewer_rows.svg, loss against rows held without training (the paper's
Figure 7); figures.svg, losses by size, window, heads and updates (Figures 3 and 4); budgets.svg, loss against budgets (Figure 6).

    .venv/bin/python experiments/documents/figures.py
"""

import json
import pathlib

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "lapse"  # the same file for the same numbers
import matplotlib.pyplot as plt  # noqa: E402

RESULTS = pathlib.Path(__file__).parent / "results"
WINDOWS = (16, 32, 64, 128, 192)
READINGS = {  # of a run's evaluations: whose run, label, colour, marker
    "budget": ("selective", "selective, budgets", "C1", "o"),
    "h2o": ("standard", "standard, H2O", "C0", "s"),
    "tova": ("standard", "standard, TOVA", "C2", "v"),
    "sink_window": ("standard", "standard, sinks and a window", "C4", "^"),
    "local": ("standard", "standard, a window", "C7", "x"),
}
MODELS = {  # the panels of fewer_rows.svg: the runs' names around the kind of attention
    "d = 4, learned positions": "d4-256-{}-1",
    "d = 2, relative positions": "d2-256-{}_relative-1",
    "d = 4, relative positions, seed 1": "d4-256-{}_relative-1",
    "d = 4, relative positions, seed 2": "d4-256-{}_relative-2",
}
PATTERNS = {"local_{}": ("local", "P"), "local_global_{}": ("local-global", "*"), "strided_{}_8": ("strided", "D")}  # trained: label, marker
KINDS = {"standard": "C0", "selective": "C1"}


def result(name):
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text()) if file.exists() else None


def test_loss(name):
    found = result(name)
    return found and found["evaluation"]["test"]["loss"]


def save(figure, name, bottom=0):
    """`bottom`: the share of the height that a legend below the panels takes."""
    figure.tight_layout(rect=(0, bottom, 1, 1))
    figure.savefig(RESULTS / f"{name}.svg", metadata={"Date": None})


def fewer_rows():
    figure, panels = plt.subplots(1, len(MODELS), figsize=(3.8 * len(MODELS), 3.7))
    for axes, (title, name) in zip(panels, MODELS.items()):
        for reading, (kind, label, colour, marker) in READINGS.items():
            read = (result(name.format(kind)) or {"evaluation": {}})["evaluation"]
            found = [read[key] for key in (*(f"{reading}_{rows}" for rows in WINDOWS), "test") if key in read]
            axes.plot([one["memory_mean"] for one in found], [one["loss"] for one in found], f"{marker}-", color=colour, label=label, markersize=5)
        for pattern, (label, marker) in PATTERNS.items():
            runs = [found["evaluation"]["test"] for rows in WINDOWS if (found := result(name.format(pattern.format(rows))))]
            if runs:
                axes.plot([one["memory_mean"] for one in runs], [one["loss"] for one in runs], f"{marker}:", color="C3", label=f"trained: {label}", markersize=6)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("rows held, mean of layers and queries")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("nats per piece, test")
    figure.legend(*panels[0].get_legend_handles_labels(), fontsize=8, loc="lower center", ncols=8)
    save(figure, "fewer_rows", bottom=0.12)


def lines(axes, values, name):
    """Test losses of both kinds, where there are such runs: name(kind, end of the kind, value); dashed with relative positions."""
    for end, style, positions in (("", "o-", "learned"), ("_relative", "s--", "relative")):
        for kind, colour in KINDS.items():
            found = [(value, loss) for value in values if (loss := test_loss(name(kind, end, value)))]
            axes.plot([x for x, _ in found], [y for _, y in found], style, color=colour, label=f"{kind}, {positions} positions", markersize=4)


def size_context_heads_updates():
    figure, (size, context, heads, updates) = plt.subplots(1, 4, figsize=(15, 3.4))
    lines(size, (2, 3, 4, 5, 6), lambda kind, end, d: f"d{d}-256-{kind}{end}-1")
    size.set_ylim(top=4.6)  # room for the legend
    size.set_xlabel("d: layers and heads, of width 64 d")
    size.set_xticks((2, 3, 4, 5, 6))
    size.set_ylabel("nats per piece, test")
    lines(context, (256, 512, 1024, 2048), lambda kind, end, n: f"d2-{n}-{kind}{end}-1")
    context.set_xlabel("window, pieces; d = 2")
    context.set_xscale("log", base=2)
    context.xaxis.set_major_formatter("{x:g}")
    more_heads = (3, 4, 8, 16)
    lines(heads, (2, *more_heads), lambda kind, end, n: f"d2-256-{kind}{f'_{n}_heads' if n in more_heads else ''}{end}-1")
    heads.axhline(test_loss("d2-256-selective-1"), color=KINDS["selective"], linewidth=0.8)  # to be reached with learned positions
    heads.set_xlabel("heads of width 64, d = 2")
    for label, end, colour in (("learned positions, 5,000 updates", "-1", "C3"), ("learned positions, 20,000 updates", "_20k-1", "C5"), ("relative positions, 5,000 updates", "_relative-1", "C8")):
        curves = [{line["update"]: line["loss"] for line in result(f"d2-256-{kind}{end}")["validation"]} for kind in KINDS]
        updates.plot(list(curves[0]), [curves[0][n] - curves[1][n] for n in curves[0]], color=colour, label=label)
    updates.axhline(0, color="0.6", linewidth=0.8)
    updates.set_ylim(top=0.53)  # room for the legend
    updates.set_xlabel("updates, d = 2")
    updates.set_ylabel("standard − selective, nats, validation")
    heads.set_xticks((2, *more_heads))
    for axes in (size, context, heads, updates):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, loc="upper right" if axes is updates else "best")
    save(figure, "figures")


SEARCHES = {"window 512, learned positions": "d2-512-{}-1", "window 1,024, learned positions": "d2-1024-{}-1", "window 2,048, learned positions": "d2-2048-{}-1", "window 512, relative positions": "d2-512-{}_relative-1", "window 1,024, relative positions": "d2-1024-{}_relative-1"}
TRAINED = {"selective": ("selective", "C1"), "memory_loss": ("selective, memory loss", "C2")}
DOCUMENTS = {"budgets": ("", "-"), "budgets_filled": (", windows filled to 90 %", ":")}


def loss_against_budgets():
    """Each round of `lapse prune`: the loss on the text where budgets are chosen, which is all that it reads."""
    figure, panels = plt.subplots(1, len(SEARCHES), figsize=(4.4 * len(SEARCHES), 3.6))
    for axes, (title, name) in zip(panels, SEARCHES.items()):
        for kind, (label, colour) in TRAINED.items():
            run = result(name.format(kind))
            for documents, (which, style) in DOCUMENTS.items() if run else ():
                search = run["budgets"][documents]
                axes.plot(*zip(*search["curve"]), style, color=colour, label=label + which)
        far = []
        for documents, (which, style) in DOCUMENTS.items():
            loss = result(name.format("selective"))["budgets"][documents]["chosen_on"]["loss_standard"]
            if loss < axes.get_ylim()[1]:
                axes.axhline(loss, color=KINDS["standard"], linestyle=style, label="standard, all rows" + which)
            else:
                far.append(f"{loss:.2f}")
        if far:
            axes.text(0.97, 0.95, f"standard: {' and '.join(far)}", transform=axes.transAxes, ha="right", va="top", fontsize=8, color=KINDS["standard"])
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("rows that the layers may hold together")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("nats per piece, text of the search")
    drawn = {label: line for axes in panels for line, label in zip(*axes.get_legend_handles_labels())}
    panels[-1].legend(drawn.values(), drawn.keys(), fontsize=7)
    save(figure, "budgets")


if __name__ == "__main__":
    fewer_rows()
    loss_against_budgets()
    size_context_heads_updates()
