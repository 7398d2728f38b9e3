"""Matrices of queries and rows, from files of `lapse inspect --matrix`: a panel for each layer, or each head of a layer. What was read is said where
files differ in it."""

import numpy as np

LABELLED = 48  # tokens, at most, of which each is named
TITLE = 36  # characters of a title above a panel
LABELS = {"attention": "weight", "kept": "share of documents that hold the row", "masking": "F"}


def triangle(lines):
    """[query][row] of a head, with NaN for later rows; ValueError if a line has not one number for each row up to its own."""
    values = np.full((len(lines), len(lines)), np.nan)
    for i, line in enumerate(lines):
        if len(line) != i + 1 or not {*map(type, line)} <= {int, float} or not np.isfinite(line).all():
            raise ValueError
        values[i, : i + 1] = line
    return values


def require(holds):
    if not holds:
        raise ValueError


class Matrices:
    """A file's panels, as (title, values), and its facts: what was read, and how, by name."""

    def __init__(self, label, path):
        self.label, self.panels = label, []
        try:
            with open(path, encoding="utf-8") as file:
                found = json.load(file)
            self.what, self.tokens, layers = found["matrix"], found["tokens"], found["layers"]
            require(isinstance(self.what, str) and isinstance(self.tokens, list) and all(isinstance(token, str) for token in self.tokens))
            self.heads = len(layers[0]["heads"])
            for layer in layers:
                require(type(layer["layer"]) is int and len(layer["heads"]) == self.heads)
                for head, lines in enumerate(layer["heads"]):
                    self.panels.append((f"layer {layer['layer']}" + (f", head {head}" if self.heads > 1 else ""), triangle(lines)))
            queries = {len(values) for _, values in self.panels}  # a set of one; of none, where there is no head
            require(len(queries) == 1 and max(len(self.tokens), 1) <= min(queries))
            self.facts = facts_of(found)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError):
            stop(f"{path}: not a whole file of `lapse inspect --matrix`")


def facts_of(found):
    """What a file says of what was read. Older versions wrote nothing but the number of documents."""
    require(type(found["documents"]) is int)
    facts = {"documents": found["documents"]}
    if "options" not in found:
        return facts
    options, config = found["options"], found["config"]
    facts |= {"method": found["method"], "split": found["split"]}
    if "task" in found:
        facts |= {"text": f"of the task {found['task']}"}
        facts |= {f"{found['task']}.{name}": value for name, value in config.get(found["task"], {}).items()}
    else:
        data = config["data"]
        own = data.get("path") or data.get(found["split"])
        facts |= {"text": os.path.normpath(options.get("data") or own), "checksum": found["text"], "min_fill": 0}
        facts["documents by"] = options.get("data_documents") or data.get("documents", "none")
    return facts | {name: value for name, value in options.items() if name not in ("data", "data_documents")}


def remarks(files):
    """Of each file a line for each fact in which files that tell it differ."""
    names = dict.fromkeys(name for file in files for name in file.facts)
    new = [file for file in files if len(file.facts) > 1]
    differ = [name for name in names if len({repr(file.facts.get(name)) for file in (files if name == "documents" else new)}) > 1]
    of_texts = [file.facts["checksum"] for file in new if "checksum" in file.facts]
    if len(of_texts) == len(new) and len({*of_texts}) == 1:  # one text, though perhaps in files of different names
        differ = [name for name in differ if name != "text"]
    elif {"text", "split", "min_fill", "documents by"} & {*differ}:  # which say why the checksums differ
        differ = [name for name in differ if name != "checksum"]
    return [[f"{name} {told(name, file.facts, new)}" for name in differ] for file in files]


def told(name, facts, files):
    """A fact's value in a few words: of files' paths the last part, where these tell them apart."""
    if name not in facts:
        return "not given" if len(facts) > 1 else "unknown"
    if name == "text":
        paths = {file.facts["text"] for file in files if "text" in file.facts}
        return os.path.basename(facts[name]) if len({*map(os.path.basename, paths)}) == len(paths) else facts[name]
    return f"{facts[name]:g}" if isinstance(facts[name], float) else facts[name]


def wrapped(lines):
    """As lines that fit above a panel."""
    return [part for line in lines for part in textwrap.wrap(printable(line), TITLE)]


def picture():
    files = [Matrices(label, path) for label, path in settings["inputs"]]
    what = files[0].what
    if any(file.what != what for file in files):
        stop(f"these files show different things; plot {' and '.join(dict.fromkeys(file.what for file in files))} apart")
    most = max(len(file.panels) for file in files)
    heads = files[0].heads
    across = heads if heads > 1 else most if len(files) > 1 else min(most, 4)
    each = -(-most // across)  # lines of panels of a file: of several heads one for each layer
    down = each * len(files)
    said = [wrapped(lines) for lines in remarks(files)]
    size = (2.6 * across + 1, (2.6 + 0.15 * max(map(len, said))) * down + 0.4)
    figure, all_axes = plt.subplots(down, across, figsize=size, layout="constrained", squeeze=False)
    high = max(np.nanquantile(values, 0.99) for file in files for _, values in file.panels)
    used = set()
    for i, file in enumerate(files):
        for j, (title, values) in enumerate(file.panels):
            row, column = i * each + j // across, j % across
            axes = all_axes[row][column]
            used.add((row, column))
            image = axes.imshow(values, vmin=0, vmax=high or 1, cmap="viridis", interpolation="nearest", aspect="equal")
            axes.grid(False)
            axes.set_title("\n".join(wrapped([f"{file.label}: {title}"]) + said[i]) if len(files) > 1 else title, fontsize=8)
            axes.tick_params(labelsize=6)
            if 0 < len(file.tokens) <= LABELLED:
                tokens = [*map(printable, file.tokens)]
                axes.set_xticks(range(len(tokens)), tokens, rotation=90)
                axes.set_yticks(range(len(tokens)), tokens)
    for row in range(down):
        for column in range(across):
            if (row, column) not in used:
                all_axes[row][column].axis("off")
    clipped = max(np.nanmax(values) for file in files for _, values in file.panels) > (high or 1)  # then the bar ends in an arrow
    figure.colorbar(image, ax=all_axes, shrink=0.6, extend="max" if clipped else "neither", label=LABELS.get(what, what))
    figure.supxlabel("row", fontsize=8)
    figure.supylabel("query", fontsize=8)
    return figure


save(picture(), settings)
