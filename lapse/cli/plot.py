"""Learning curves and memory sizes of runs, from their metrics.jsonl. `lapse plot` carries this script and runs it with
one argument, a JSON object: runs [[label, path of metrics.jsonl], ...], x, title, smooth, out."""

import json
import os
import sys

NO_MATPLOTLIB = 3  # exit status


def stop(message):
    print(message, file=sys.stderr)
    sys.exit(1)


try:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
except ImportError as error:
    print(error, file=sys.stderr)
    sys.exit(NO_MATPLOTLIB)

NAMES = {
    "bpb": "bits per byte",
    "bpc": "bits per character",
    "bpt": "bits per token",
    "ppl": "perplexity",
    "loss": "loss, nats per token",
}
AXES = {"updates": "updates", "tokens": "tokens trained on", "hours": "hours of training"}


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_metrics(line):
    """Whether `lapse train` may have written a line: numbers, and a list of objects of numbers."""
    if not isinstance(line, dict) or not isinstance(line.get("update"), int):
        return False
    layers = line.get("layers", [])
    return (
        isinstance(layers, list)
        and all(isinstance(layer, dict) and all(map(is_number, layer.values())) for layer in layers)
        and all(is_number(value) for name, value in line.items() if name not in ("split", "layers"))
    )


class Run:
    """One run's lines: `train` and `valid`, each a list of (x, line)."""

    def __init__(self, label, path, axis):
        self.label, self.train, self.valid = label, [], []
        update = x = 0
        for text in open(path, encoding="utf-8"):
            try:
                line = json.loads(text)
            except ValueError:  # half a line: the run is writing, or was killed
                continue
            if not is_metrics(line):
                continue
            if line.get("split") == "train":  # figures of a line are means over the updates since the one before
                seconds = line.get("ms_per_update", 0) / 1000
                each = {"updates": 1, "hours": seconds / 3600, "tokens": seconds * line.get("tokens_per_second", 0)}
                x += each[axis] * (line["update"] - update)
                update = line["update"]
                self.train.append((x, line))
            elif line.get("split") == "valid":
                self.valid.append((line["update"] if axis == "updates" else x, line))
        if not self.train and not self.valid:
            stop(f"{path}: has no line of training or validation")

    def metrics(self):
        """The figures of a line, the main one first."""
        line = (self.valid or self.train)[0][1]
        names = list(line)
        after = names.index("loss") + 1 if "loss" in names else 0
        figures = names[after : min(names.index(n) for n in (*names[-1:], "cost", "layers") if n in names)]
        return figures + ["loss"]


def smoothed(values, n):
    """Of each value the mean with the n - 1 before it, as far as there are any."""
    result, total = [], 0.0
    for i, value in enumerate(values):
        total += value - (values[i - n] if i >= n else 0)
        result.append(total / min(i + 1, n))
    return result


def series(lines, value):
    pairs = [(x, value(line)) for x, line in lines]
    return zip(*pairs) if (pairs := [pair for pair in pairs if pair[1] is not None]) else ((), ())


def memory(line, layer):
    """A layer's mean memory size, or that of all layers."""
    sizes = [one["memory_mean"] for one in line.get("layers", []) if "memory_mean" in one]
    if not sizes or (layer is not None and layer >= len(sizes)):
        return None
    return sum(sizes) / len(sizes) if layer is None else sizes[layer]


def draw(axes, run, value, colour, label, smooth):
    x, y = series(run.train, value)
    n = smooth or max(1, len(x) // 50)
    if n > 1:
        axes.plot(x, y, color=colour, alpha=0.2, linewidth=0.8)
    axes.plot(x, smoothed(y, n), color=colour, linewidth=1.2, alpha=0.75, label=label if not run.valid else None)
    x, y = series(run.valid, value)
    if x:
        axes.plot(x, y, color=colour, marker="o", markersize=3, linewidth=1.2, linestyle="--", label=label)


def common_metric(runs):
    for name in runs[0].metrics():
        if all(name in run.metrics() for run in runs):
            return name
    stop("these runs have no figure in common; plot them apart")


def main(settings):
    runs = [Run(label, path, settings["x"]) for label, path in settings["runs"]]
    metric = common_metric(runs)
    # Labels stay text in an SVG, and the same runs give the same file.
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "lapse", "axes.grid": True, "grid.alpha": 0.3})
    figure, (curves, sizes) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    colours = plt.get_cmap("tab10").colors
    for i, run in enumerate(runs):
        draw(curves, run, lambda line: line.get(metric), colours[i % 10], run.label, settings["smooth"])
    layers = max(len(line.get("layers", [])) for run in runs for _, line in run.train + run.valid)
    if len(runs) == 1:
        for layer in range(layers):
            draw(sizes, runs[0], lambda line: memory(line, layer), colours[layer % 10], f"layer {layer}", settings["smooth"])
    else:
        for i, run in enumerate(runs):
            draw(sizes, run, lambda line: memory(line, None), colours[i % 10], run.label, settings["smooth"])
    for axes in (curves, sizes):
        axes.set_xlabel(AXES[settings["x"]])
        axes.legend(fontsize=8)
    curves.set_ylabel(NAMES.get(metric, metric))
    curves.set_title("training (line) and validation (dashed)", fontsize=9)
    sizes.set_ylabel("rows in memory")
    sizes.set_ylim(bottom=0)
    sizes.set_title("memory size" + (", mean of the layers" if len(runs) > 1 else ""), fontsize=9)
    figure.suptitle(settings["title"])
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


main(json.loads(sys.argv[1]))
