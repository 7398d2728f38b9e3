"""What the pictures of `lapse plot` share. The command carries this script and those that draw one kind of picture each,
plot_curves.py, plot_losses.py, plot_memory.py, plot_matrix.py, plot_budgets.py and plot_record.py, and runs this one and one of them with one
argument, a JSON object: inputs [[label or null, path], ...], x, metric, title, smooth, out."""

import sys

sys.path = [path for path in sys.path if path]  # not from the working directory

import json
import os
import textwrap

NO_MATPLOTLIB = 3  # exit status


def stop(message):
    print(message, file=sys.stderr)
    sys.exit(1)


try:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogFormatter
except ImportError as error:
    print(error, file=sys.stderr)
    sys.exit(NO_MATPLOTLIB)

NAMES = {
    "bpb": "bits per byte",
    "bpc": "bits per character",
    "bpt": "bits per token",
    "ppl": "perplexity",
    "loss": "loss, nats per token",
    "nats_per_target": "nats per target token",
}

# Labels stay text in an SVG, and the same inputs give the same file.
# Texts are shown as they are: "$" begins no formula.
plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "lapse", "axes.grid": True, "grid.alpha": 0.3, "text.parse_math": False})


def colours(n):
    """Of n curves, no two the same."""
    return plt.get_cmap("tab10").colors[:n] if n <= 10 else [plt.get_cmap("turbo")(0.05 + 0.9 * i / (n - 1)) for i in range(n)]


def printable(text):
    """With a dotted circle for each character that has no shape of its own: control characters are no part of XML."""
    return "".join(c if c.isprintable() else "◌" for c in text)


def shortened(label, most):
    """A long label without its middle: paths differ in how they begin or end."""
    return label if len(label) <= most else label[: most // 2 - 1] + "…" + label[-(most - most // 2) :]


def legend(axes, whole=()):
    """Within the axes, which stay as large as they are. Many labels stand in columns, in smaller letters. Those in `whole` are not shortened."""
    handles, labels = axes.get_legend_handles_labels()
    points = 0.8 * axes.get_position().height * axes.figure.get_figheight() * 72
    size = 8 if len(labels) * 8 * 1.4 < points else 6
    columns = -(-len(labels) // max(1, int(points / (size * 1.4))))
    box = axes.legend(handles, [label if label in whole else shortened(label, 48 // columns) for label in labels], fontsize=size, ncols=max(1, columns))
    box.set_in_layout(False)


def from_zero(axes):
    """A y axis from 0 to a little above what is drawn."""
    axes.set_ylim(0, 1.05 * axes.dataLim.y1 if axes.dataLim.y1 > 0 else 1)


def logarithmic(axes):
    """A logarithmic x axis whose numbers are no formulas."""
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(LogFormatter())
    axes.xaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.4)))


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


NO_FIGURES = ("split", "layers", "memory_of_processes", "whole")


def is_metrics(line):
    """Whether `lapse train` may have written a line: numbers, null for those beyond all numbers, and a list of objects of numbers."""
    if not isinstance(line, dict) or not isinstance(line.get("update"), int):
        return False
    layers = line.get("layers", [])
    return (
        isinstance(layers, list)
        and all(isinstance(layer, dict) and all(map(is_number, layer.values())) for layer in layers)
        and all(value is None or is_number(value) for name, value in line.items() if name not in NO_FIGURES)
    )


def is_one_value(path):
    """Whether a file is JSON as a whole, of several lines: some of them, such as "1.5", may be JSON by themselves."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            json.load(file)
    except ValueError:
        return False
    return True


def json_lines(path):
    """The lines of a file of JSON. The last may be half a line, of a run that is writing or was killed: it is passed over. A file without any
    has none, nor has one that is a single value."""
    bad, good = None, False
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, text in enumerate(file, 1):
            if bad and good:
                if is_one_value(path):
                    return
                stop(f"{path}: line {bad} is no JSON")
            try:
                line = json.loads(text)
            except ValueError:
                bad = number
            else:
                good = True
                yield line


def figures_of(line):
    """The figures of a line of metrics or of an evaluation, the main one first, then the loss."""
    names = [name for name, value in line.items() if is_number(value) or name == "layers"]
    after = max((names.index(name) + 1 for name in ("update", "loss", "seed") if name in names), default=0)
    ends = [names.index(name) for name in (*names[-1:], "cost", "layers", "scored", "steps") if name in names[after:]]
    return names[after : min(ends, default=None)] + [name for name in ("loss",) if name in names]


def all_figures(lines):
    """The figures of some lines, the main one first. Those of a validation are before those of training, and a line with more of
    them before one with fewer: before an agent's first episode has ended, lines have less to tell."""
    known = {tuple(figures_of(line)): line.get("split") for line in lines}
    ordered = sorted(known, key=lambda names: (known[names] == "train", -len(names)))
    return list(dict.fromkeys(name for names in ordered for name in names))


def common_figure(inputs, wanted):
    """The wanted figure, or else the first that all have; `inputs`: of each the path and its lines."""
    names = {path: all_figures(lines) for path, lines in inputs}
    if wanted:
        for path, lines in inputs:
            if not any(is_number(line.get(wanted)) for line in lines):
                others = {name for line in lines for name, value in line.items() if is_number(value)} - {"update", *names[path]}
                stop(f"{path}: has no figure '{wanted}'; it has {', '.join(names[path] + sorted(others))}")
        return wanted
    for name in names[inputs[0][0]]:
        if all(name in figures for figures in names.values()):
            return name
    stop("these runs have no figure in common; plot them apart")


def memory(line, layer):
    """A layer's mean memory size, or that of all layers."""
    sizes = [one["memory_mean"] for one in line.get("layers", []) if "memory_mean" in one]
    if not sizes or (layer is not None and layer >= len(sizes)):
        return None
    return sum(sizes) / len(sizes) if layer is None else sizes[layer]


def save(figure, settings):
    figure.suptitle("\n".join(map(printable, textwrap.wrap(settings["title"], int(10 * figure.get_figwidth())))))
    out = settings["out"]
    kind = os.path.splitext(out)[1][1:].lower()
    partial = out + ".partial"
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    try:
        figure.savefig(partial, format=kind, dpi=150, metadata=undated.get(kind))
        os.replace(partial, out)
    except OSError as error:
        if os.path.exists(partial):
            os.unlink(partial)
        stop(f"{out}: cannot write ({error.strerror})")


settings = json.loads(sys.argv[1])
# A legend leaves out labels that begin with "_".
settings["inputs"] = [[label and (" " if label.startswith("_") else "") + printable(label), path] for label, path in settings["inputs"]]
