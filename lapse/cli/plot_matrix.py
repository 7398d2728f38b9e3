"""Matrices of queries and rows, from files of `lapse inspect --matrix`: a panel for each layer, or each head of a layer."""

import numpy as np

LABELLED = 48  # tokens, at most, of which each is named
LABELS = {"attention": "weight", "kept": "share of documents that hold the row", "masking": "F"}


def matrices(label, path):
    """(title, [query][row] with NaN for later rows) of each layer and head, and the file."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        panels = []
        for layer in found["layers"]:
            for head, lines in enumerate(layer["heads"]):
                values = np.full((len(lines), len(lines)), np.nan)
                for i, line in enumerate(lines):
                    values[i, : i + 1] = line
                name = f"layer {layer['layer']}" + (f", head {head}" if len(layer["heads"]) > 1 else "")
                panels.append((name, values))
        return label, found, panels
    except (ValueError, KeyError, TypeError):
        stop(f"{path}: not a whole file of `lapse inspect --matrix`")


def picture():
    files = [matrices(label, path) for label, path in settings["inputs"]]
    what = files[0][1]["matrix"]
    if any(found["matrix"] != what for _, found, _ in files):
        stop(f"these files show different things; plot {' and '.join(dict.fromkeys(found['matrix'] for _, found, _ in files))} apart")
    most = max(len(panels) for _, _, panels in files)
    heads = len(files[0][1]["layers"][0]["heads"])
    across = heads if heads > 1 else most if len(files) > 1 else min(most, 4)
    each = -(-most // across)  # lines of panels of a file: of several heads one for each layer
    down = each * len(files)
    figure, all_axes = plt.subplots(down, across, figsize=(2.6 * across + 1, 2.6 * down + 0.4), layout="constrained", squeeze=False)
    high = max(np.nanquantile(values, 0.99) for _, _, panels in files for _, values in panels)
    places = [(label, found, title, values, i, j) for i, (label, found, panels) in enumerate(files) for j, (title, values) in enumerate(panels)]
    used = set()
    for label, found, title, values, i, j in places:
        row, column = i * each + j // across, j % across
        axes = all_axes[row][column]
        used.add((row, column))
        image = axes.imshow(values, vmin=0, vmax=high or 1, cmap="viridis", interpolation="nearest", aspect="equal")
        axes.grid(False)
        axes.set_title(f"{label}: {title}" if len(files) > 1 else title, fontsize=8)
        axes.tick_params(labelsize=6)
        if 0 < len(found["tokens"]) <= LABELLED:
            axes.set_xticks(range(len(found["tokens"])), found["tokens"], rotation=90)
            axes.set_yticks(range(len(found["tokens"])), found["tokens"])
    for row in range(down):
        for column in range(across):
            if (row, column) not in used:
                all_axes[row][column].axis("off")
    clipped = max(np.nanmax(values) for _, _, panels in files for _, values in panels) > (high or 1)  # then the bar ends in an arrow
    figure.colorbar(image, ax=all_axes, shrink=0.6, extend="max" if clipped else "neither", label=LABELS.get(what, what))
    figure.supxlabel("row", fontsize=8)
    figure.supylabel("query", fontsize=8)
    return figure


save(picture(), settings)
