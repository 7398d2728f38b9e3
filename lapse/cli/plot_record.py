"""A text shaded by what each layer remembers of it (Figures 8 and 11 of the Expire-Span paper), from files of `lapse inspect -o FILE.json`.
Two texts that were compared stand side by side. Of an agent a step is what it sees then."""

import math

COLUMNS, LINES = 80, 60  # characters of a line; lines of all layers together
NARROW, TALL = 0.075, 0.17  # inches of a character, and of a line
LABELS = {"held": "timesteps held", "span": "span"}
STILL = math.inf  # how long a row is held that is there when its text, window or episode ends
STILL_COLOUR = "#fce3c4"


def record(path):
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        if not found["layers"] or not all(isinstance(layer["held"], list) for layer in found["layers"]):
            raise ValueError
        return found
    except (ValueError, KeyError, TypeError):
        stop(f"{path}: not a whole file of `lapse inspect -o FILE.json`")


def held(layer):
    there = layer.get("there", [False] * len(layer["held"]))
    return [STILL if stays else value for value, stays in zip(layer["held"], there)]


def shown(one, layer, metric):
    """(text, value or None) of each cell; the value is the largest of its tokens. "\n": another window begins."""
    values = held(layer) if metric == "held" else layer["told"][metric]
    for begin, cells in zip(one["begins"], one["cells"]):
        if begin > one["begins"][0]:
            yield "\n", None
        for cell in cells:
            end = begin + cell[1]
            yield cell[0] or "·", max((value for value in values[begin:end] if value is not None), default=None)
            begin = end


def placed(one, layer, metric, lines):
    """(letter, value, column, line) of the first so many lines. An agent's steps stand apart, each in one line if it fits there."""
    x = y = 0
    steps = one.get("unit") == "step"
    for text, value in shown(one, layer, metric):
        if steps and x > 0 and x + len(text) > COLUMNS:
            x, y = 0, y + 1
        for letter in text:
            if y >= lines:
                return
            if letter != "\n":
                yield letter, value, x, y
            x += 1
            if letter == "\n" or x >= COLUMNS:
                x, y = 0, y + 1
        x += steps and x > 0


def picture():
    if len(settings["inputs"]) > 1:
        stop("draw texts one by one; `lapse inspect --compare` puts two side by side")
    path = settings["inputs"][0][1]
    found = record(path)
    texts = [found, found["other"]] if "other" in found else [found]
    told = [name for name in found["layers"][0]["told"] if all(name in layer["told"] for one in texts for layer in one["layers"])]
    metric = settings["metric"] or (told + ["held"])[0]
    if metric not in ["held", *told]:
        stop(f"{path}: has no '{metric}'; it has {', '.join(['held', *told])}")
    layers, lines = len(found["layers"]), max(2, LINES // len(found["layers"]))
    panels = [[list(placed(one, one["layers"][l], metric, lines)) for one in texts] for l in range(layers)]
    lines = 1 + max((letter[3] for row in panels for panel in row for letter in panel), default=0)
    values = [value for row in panels for panel in row for _, value, _, _ in panel if value is not None]
    known = sorted(value for value in values if value != STILL)
    low, high = (known[math.floor(0.02 * (len(known) - 1))], known[math.ceil(0.98 * (len(known) - 1))]) if known else (0, 1)
    size = (COLUMNS * NARROW * len(texts) + 1.5, (lines * TALL + 0.3) * layers + 0.5)
    figure, all_axes = plt.subplots(layers, len(texts), figsize=size, layout="constrained", squeeze=False)
    pale = matplotlib.colors.ListedColormap(plt.get_cmap("Blues")([0.65 * i / 255 for i in range(256)]))  # on which black is read
    shade = matplotlib.cm.ScalarMappable(matplotlib.colors.Normalize(low, high if high > low else low + 1), pale)
    for l, row in enumerate(panels):
        for t, panel in enumerate(row):
            axes = all_axes[l][t]
            axes.set(xlim=(0, COLUMNS), ylim=(lines, 0), xticks=[], yticks=[])
            axes.grid(False)
            axes.set_title(f"layer {l}" + (f", {'AB'[t]}" if len(texts) > 1 else ""), fontsize=8, loc="left")
            for letter, value, x, y in panel:
                if value is not None:
                    colour = STILL_COLOUR if value == STILL else shade.to_rgba(value)
                    axes.add_patch(plt.Rectangle((x, y), 1, 1, linewidth=0, facecolor=colour))
                if (letter := printable(letter)) != " ":
                    axes.text(x + 0.5, y + 0.5, letter, family="monospace", fontsize=7, ha="center", va="center")
    beyond = (bool(known) and known[0] < low, bool(known) and known[-1] > high)  # then the bar ends in an arrow
    extend = {(True, True): "both", (True, False): "min", (False, True): "max"}.get(beyond, "neither")
    if STILL in values:
        figure.legend([plt.Rectangle((0, 0), 1, 1, facecolor=STILL_COLOUR)], [f"still there when its {found['part']} ended" if found.get("headings") else "still there at the end"], loc="outside lower left", fontsize=7)
    figure.colorbar(shade, ax=all_axes, shrink=0.6, extend=extend, label=LABELS.get(metric, metric))
    return figure


save(picture(), settings)
