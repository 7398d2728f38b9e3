"""Learning curves and memory sizes of runs, from their metrics.jsonl."""

import math

AXES = {"updates": "updates", "tokens": "tokens trained on", "steps": "steps taken", "hours": "hours of training"}


def steps_per_second(line):
    """Of a line of training: tokens, or what an agent does."""
    return line.get("tokens_per_second", line.get("steps_per_second", 0))


class Run:
    """One run's lines: `train` and `valid`, each a list of (x, line)."""

    def __init__(self, label, path, axis):
        self.label, self.path, self.train, self.valid = label, path, [], []
        update = x = 0
        rate = 1 if axis == "updates" else 0  # of x, for each update
        waiting = []  # lines of validation since the last of training
        for line in filter(is_metrics, json_lines(path)):
            if line.get("split") == "train":  # figures of a line are means over the updates since the one before
                seconds = line.get("ms_per_update", 0) / 1000
                steps = seconds * steps_per_second(line)
                rate = {"updates": 1, "hours": seconds / 3600, "tokens": steps, "steps": steps}[axis]
                self.valid += [(x + rate * (one["update"] - update), one) for one in waiting]
                x += rate * (line["update"] - update)
                update, waiting = line["update"], []
                self.train.append((x, line))
            elif line.get("split") == "valid":
                waiting.append(line)
        self.valid += [(x + rate * (one["update"] - update), one) for one in waiting]
        if not self.train and not self.valid:
            stop(f"{path}: has no line of training or validation")

    def acts(self):
        """Whether it is an agent's: then a loss is that of what it did, not of tokens."""
        return any("return" in line or "steps_per_second" in line for _, line in self.train + self.valid)


def smoothed(values, n):
    """Of each value the mean with the n - 1 before it, as far as there are any."""
    windows = (values[max(0, i - n + 1) : i + 1] for i in range(len(values)))
    return [math.fsum(window) / len(window) for window in windows]  # a running sum would lose digits after a large value


def series(lines, value):
    pairs = [(x, value(line)) for x, line in lines]
    return zip(*pairs) if (pairs := [pair for pair in pairs if pair[1] is not None]) else ((), ())


def draw(axes, run, value, colour, label, smooth):
    valid_x, valid_y = series(run.valid, value)
    x, y = series(run.train, value)
    n = smooth or max(1, len(x) // 50)
    if n > 1:
        axes.plot(x, y, color=colour, alpha=0.2, linewidth=0.8)
    marker = "o" if len(x) == 1 else None  # of a single line there is no curve
    axes.plot(x, smoothed(y, n), color=colour, marker=marker, markersize=3, linewidth=1.2, alpha=0.75, label=None if valid_x else label)
    if valid_x:
        axes.plot(valid_x, valid_y, color=colour, marker="o", markersize=3, linewidth=1.2, linestyle="--", label=label)


def picture():
    runs = [Run(label, path, settings["x"]) for label, path in settings["inputs"]]
    acting = [run.acts() for run in runs]
    if any(acting) and not all(acting):
        apart = (runs[acting.index(True)].path, runs[acting.index(False)].path)
        stop(f"{apart[0]} is of an agent, {apart[1]} of a model that predicts: their figures have nothing in common; plot them apart")
    metric = common_figure([(run.path, [line for _, line in run.valid + run.train]) for run in runs], settings["metric"])
    acts = any("steps_per_second" in line for run in runs for _, line in run.train)
    figure, (curves, sizes) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for colour, run in zip(colours(len(runs)), runs):
        draw(curves, run, lambda line: line.get(metric), colour, run.label, settings["smooth"])
    layers = max(len(line.get("layers", [])) for run in runs for _, line in run.train + run.valid)
    if len(runs) == 1:
        for layer, colour in enumerate(colours(layers)):
            draw(sizes, runs[0], lambda line: memory(line, layer), colour, f"layer {layer}", settings["smooth"])
    else:
        for colour, run in zip(colours(len(runs)), runs):
            draw(sizes, run, lambda line: memory(line, None), colour, run.label, settings["smooth"])
    for axes in (curves, sizes):
        axes.set_xlabel(AXES["steps" if acts and settings["x"] == "tokens" else settings["x"]])
        legend(axes)
    curves.set_ylabel("loss" if metric == "loss" and acting[0] else NAMES.get(metric, metric))
    curves.set_title("training (line) and validation (dashed)", fontsize=9)
    sizes.set_ylabel("rows in memory")
    from_zero(sizes)
    sizes.set_title("memory size" + (", mean of the layers" if len(runs) > 1 else ""), fontsize=9)
    return figure


save(picture(), settings)
