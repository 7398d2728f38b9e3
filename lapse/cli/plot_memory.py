"""A figure against memory size: each run, or result of `lapse eval --json`, is a point, and each method a curve."""

import itertools
import tomllib


class Point:
    def __init__(self, label, path):
        self.path = path
        self.line, method, self.read = run(path) if os.path.isdir(path) else evaluation(path)
        self.series = label or printable(method)
        self.memory = memory(self.line, None)
        if self.memory is None:
            stop(f"{path}: has no memory sizes")


class Read:
    """What was read or done: the name of a task or environment, or "a text"; the text's unit, None if there is none or it is not known; the
    settings of the task or environment, or which files the text is in, None if that is not known; the task's options; the checksum of a text's
    tokens; how an agent acts."""

    def __init__(self, config, checksum=None, actions=None):
        data = config.get("data", {})
        task = data.get("task", "none")
        if task != "none":
            self.name, self.unit, self.settings = task, None, config.get(task, {})
        else:
            self.name, self.unit = TEXT, data.get("unit", "byte")
            self.settings = {key: value for key, value in data.items() if key in FILES and value not in ("", "none")}
        self.options, self.checksum, self.actions = config.get("task_options", {}), checksum, actions

    def __str__(self):
        known = [self.checksum and f"checksum {self.checksum}", self.actions and f"{self.actions} actions"]
        known += [f"{name} = {value}" for name, value in sorted({**(self.settings or {}), **self.options}.items())]
        return f"{self.name} ({', '.join(filter(None, known))})" if any(known) else self.name

    def is_like(self, other):
        """Whether figures of both are comparable, as far as is known. Versions differ in which settings they know."""
        if (self.name, self.actions, self.options) != (other.name, other.actions, other.options):
            return False
        if self.checksum and other.checksum and self.unit == other.unit and (self.checksum == other.checksum or self.unit == "byte"):
            return self.checksum == other.checksum  # of other tokens than bytes the checksum depends on the vocabulary too
        if self.settings is None or other.settings is None:
            return True
        if self.name == TEXT:
            return self.settings == other.settings
        return all(self.settings[name] == other.settings[name] for name in self.settings.keys() & other.settings.keys())


TEXT = "a text"
FILES = ("path", "train", "valid", "test", "split", "documents")


def read_by_evaluation(result):
    """Older versions did not write the configuration, but what --set changed."""
    read = Read(result.get("config", {}), result.get("text"), result.get("actions"))
    read.name = result.get("environment") or result.get("task") or TEXT
    read.unit = result.get("unit")
    if "config" not in result:
        read.settings, read.options = None, dict(value.split("=", 1) for value in result.get("set", []))
    if "data" in result.get("options", {}):
        read.settings = {"data": os.path.normpath(result["options"]["data"])}
    return read


def run(path):
    """The last validation of a run, or the last line of training where that alone has the wanted figure; the method; and what was read."""
    lines = [line for line in json_lines(os.path.join(path, "metrics.jsonl")) if is_metrics(line)]
    valid = [line for line in lines if line.get("split") == "valid"]
    if not lines:
        stop(f"{path}: has no line of training or validation")
    last = [line for line in lines if line.get("split") == "train"][-1:]
    only_trained = not valid or (last and settings["metric"] in last[0] and settings["metric"] not in valid[-1])
    line = (last or lines if only_trained else valid)[-1]
    try:
        with open(os.path.join(path, "config.toml"), "rb") as file:
            config = tomllib.load(file)
        read = Read(config, actions="drawn" if any("return" in line for line in lines) else None)
        if "documents" in read.settings:  # as an evaluation says it
            line |= {"documents": None, "options": {"block": config["train"]["block"]}}
        return line, str(config["forgetting"]["method"]), read
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        stop(f"{path}: its config.toml, which says the method and what was read, is not to be read ({getattr(error, 'strerror', None) or error}); "
             "plot a result of `lapse eval RUN --split valid --json` instead")  # fmt: skip


def evaluation(path):
    try:
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
    except ValueError:
        result = None
    if not isinstance(result, dict) or not isinstance(result.get("layers"), list):
        stop(f"{path}: neither a run's folder nor a result of `lapse eval --json`")
    if not result.get("complete"):
        stop(f"{path}: the evaluation was interrupted; run it again")
    return result, result.get("method"), read_by_evaluation(result)


def require_alike(points, told):
    """Stops if what `told` says of a point differs; None says nothing."""
    known = {told(point): point for point in points if told(point) is not None}
    if len(known) > 1:
        stop(f"figures are of different things: {', '.join(f'{point.path} is of {point.read}' for point in known.values())}; plot them apart")


def require_one_task(points):
    """The same task or environment, with the same settings, or the same text. In different units only figures of bytes and characters compare,
    which `metric` must be."""
    for one, other in itertools.combinations(points, 2):
        if not one.read.is_like(other.read):
            stop(f"figures are of different things: {one.path} is of {one.read}, {other.path} is of {other.read}; plot them apart")


def require_as_much(points):
    """Stops if a validation read only its first blocks, unless all did, and as many tokens."""
    part = [point for point in points if point.line.get("whole") is False]
    if part and (len(part) < len(points) or len({(point.read.unit, point.line["tokens"]) for point in part}) > 1):
        stop(f"{part[0].path}: its validation read a part of the text, {part[0].line['tokens']:,} tokens (train.validation_blocks); "
             "read all alike, with `lapse eval RUN --split valid --json`")  # fmt: skip


PER_TOKEN = ("loss", "bpt", "ppl", "accuracy")


def text_of(line):
    """Which text a line's figures are of, in words: the part, and of an evaluation the file and which documents of it."""
    options = line.get("options", {})
    text = line["split"]
    if "data" in options:
        text += f" of {os.path.normpath(options['data'])}"
    if "min_fill" in options:
        text += f", documents that fill {options['min_fill']:g} of a window"
    if "documents" in line and "block" in options:
        text += f", windows of {options['block']}"
    return text


def picture():
    points = [Point(label, path) for label, path in settings["inputs"]]
    for point in points:
        if not point.series:
            stop(f"{point.path}: does not say its method; name the series, --label once for each input")
    trained = [point.path for point in points if point.line.get("split") == "train"]
    if trained and len(trained) < len(points):
        stop(f"{trained[0]}: has figures of training alone, and the others of validation; plot them apart")
    texts = {text_of(point.line): point.path for point in points if "split" in point.line}
    if len(texts) > 1:  # losses of other texts, in one picture, would look like losses of other memories
        told = ", ".join(f"{path} has those of {text}" for text, path in texts.items())
        stop(f"figures are of different texts: {told}; read all alike, say with `lapse eval RUN --split valid --json`")
    require_one_task(points)
    if not trained:
        require_as_much(points)
    metric = common_figure([(point.path, [point.line]) for point in points], settings["metric"])
    if metric in PER_TOKEN:
        require_alike(points, lambda point: point.read.unit)
    mains = {point.path: figures_of(point.line)[0] for point in points}
    if not settings["metric"] and metric == "loss" and len(set(mains.values())) > 1:
        stop(f"these have different figures ({', '.join(dict.fromkeys(mains.values()))}), and nats of what they read are no common measure; "
             "plot them apart, or name a --metric")  # fmt: skip
    figure, axes = plt.subplots(figsize=(6.5, 4.5), layout="constrained")
    all_series = list(dict.fromkeys(point.series for point in points))
    for colour, series in zip(colours(len(all_series)), all_series):
        pairs = sorted((point.memory, point.line[metric]) for point in points if point.series == series)
        axes.plot(*zip(*pairs), color=colour, marker="o", markersize=4, linewidth=1.2, label=series)
    sizes = [point.memory for point in points]
    if min(sizes) > 0 and max(sizes) > 10 * min(sizes):
        logarithmic(axes)
    axes.set_xlabel("rows in memory, mean of the layers")
    axes.set_ylabel(NAMES.get(metric, metric))
    legend(axes)
    return figure


save(picture(), settings)
