"""Loss and memory size along a text, from files of `lapse eval --losses`."""

import numpy as np

POINTS = 2000  # parts of a curve, each with its least and its largest value
plt.rcParams["path.simplify"] = False


class Reading:
    """A reading's losses and memory sizes [layer][token], in the order of the text."""

    def __init__(self, label, at, nats, sizes):
        order = np.argsort(at, kind="stable")
        self.label, self.at, self.nats = label, np.array(at, float)[order], np.array(nats, float)[order]
        self.sizes = np.array(sizes, float)[order].T


def is_token(line):
    return (
        isinstance(line, dict)
        and all(is_number(line.get(name)) for name in ("at", "nats"))
        and isinstance(line.get("memory"), list)
        and all(map(is_number, line["memory"]))
    )


def readings(label, path):
    """The reading that a file holds, or both where it compares two."""
    at, nats, sizes, others, other_sizes = [], [], [], [], []
    for line in filter(is_token, json_lines(path)):
        at.append(line["at"]), nats.append(line["nats"]), sizes.append(line["memory"])
        if "against_nats" in line:
            others.append(line["against_nats"]), other_sizes.append(line["against_memory"])
    if not at:
        stop(f"{path}: neither a run's folder nor a file of `lapse eval --losses`, `lapse inspect -o FILE.json`, `lapse inspect --matrix` or `lapse prune`; "
             "results of `lapse eval --json` are for --against memory")  # fmt: skip
    all = [Reading(label, at, nats, sizes)]
    return all + [Reading(f"{label}, against", at, others, other_sizes)] if len(others) == len(at) else all


def window_means(values, n):
    """The mean of each n neighbours."""
    sums = np.concatenate([[0], np.cumsum(values)])
    return (sums[n:] - sums[:-n]) / n


def extremes(values, step):
    """Where the least and the largest of each `step` values are, in order: a curve of them shows what a part of the values would miss."""
    places = [begin + of(values[begin : begin + step]) for begin in range(0, len(values), step) for of in (np.argmin, np.argmax)]
    return np.unique([*places, len(values) - 1])


def pieces(at):
    """Where each stretch of the text that was read as a whole begins and ends. Of a stream's first token nothing is known."""
    ends = np.flatnonzero(np.diff(at) > 2) + 1
    return zip(np.append(0, ends), np.append(ends, len(at)))


def draw(axes, reading, values, n, colour, label):
    """Means of n neighbours, or of all of a shorter stretch; stretches are not joined."""
    curves = [[window_means(of[begin:end], min(n, end - begin)) for of in (reading.at, values)] for begin, end in pieces(reading.at)]
    step = sum(len(y) for _, y in curves) // POINTS
    if step > 1:
        curves = [[x[some := extremes(y, step)], y[some]] for x, y in curves]
    x, y = (np.concatenate([np.append(curve[axis], np.nan) for curve in curves])[:-1] for axis in (0, 1))
    alone = any(len(y) == 1 for _, y in curves)  # a curve of one point is none
    axes.plot(x, y, color=colour, linewidth=1.2, label=label, marker="o" if alone else None, markersize=6 if len(curves) == 1 else 2)


def picture():
    all = [reading for label, path in settings["inputs"] for reading in readings(label, path)]
    window = settings["smooth"] or max(1, min(len(reading.at) for reading in all) // 50)
    if window > min(len(reading.at) for reading in all):
        stop(f"--smooth {window}: a file has only {min(len(reading.at) for reading in all)} tokens")
    figure, (losses, sizes) = plt.subplots(2, 1, figsize=(11, 6), layout="constrained", sharex=True)
    for colour, reading in zip(colours(len(all)), all):
        draw(losses, reading, reading.nats, window, colour, reading.label)
        if len(all) > 1:
            draw(sizes, reading, reading.sizes.mean(0), window, colour, reading.label)
    if len(all) == 1:
        for layer, (colour, of) in enumerate(zip(colours(len(all[0].sizes)), all[0].sizes)):
            draw(sizes, all[0], of, window, colour, f"layer {layer}")
    losses.set_ylabel(NAMES["loss"])
    sizes.set_ylabel("rows in memory" + (", mean of the layers" if len(all) > 1 else ""))
    from_zero(sizes)
    sizes.set_xlabel(f"token of the text (means of {window})")
    for axes in (losses, sizes):
        legend(axes)
    return figure


save(picture(), settings)
