"""A figure against memory size: each run, or result of `lapse eval --json`, is a point, and each method a curve."""

import tomllib


class Point:
    def __init__(self, label, path):
        self.path = path
        self.line, method, self.read = run(path) if os.path.isdir(path) else evaluation(path)
        self.series = label or method
        self.memory = memory(self.line, None)
        if self.memory is None:
            stop(f"{path}: has no memory sizes")


class Read:
    """What is read or done: the name of a task or environment, or "a text"; the text's unit, None if there is none or it is not known; and
    what else must be the same for figures to be comparable, in words, None if it is not known."""

    def __init__(self, name, unit, settings):
        self.name, self.unit, self.settings = name, unit, settings

    def __str__(self):
        return f"{self.name} ({self.settings})" if self.settings else self.name


TEXT = "a text"


def read_by_run(config):
    data = config.get("data", {})
    task = data.get("task", "none")
    if task != "none":
        return Read(task, None, in_words(config.get(task, {})))
    return Read(TEXT, data.get("unit", "byte"), in_words({key: value for key, value in data.items() if value and key in FILES}))


def read_by_evaluation(result):
    if "environment" in result:
        set_ = "".join(f", {value}" for value in result.get("set", []))
        return Read(result["environment"], None, f"{result.get('actions')} actions{set_}")
    if "task" in result:
        return Read(result["task"], None, None)
    text = result.get("text")
    return Read(TEXT, result.get("unit"), f"{result['unit']}s, checksum {text}" if text else None)


FILES = ("path", "train", "valid", "test", "split", "documents")


def in_words(section):
    return ", ".join(f"{name} = {value}" for name, value in sorted(section.items()))


def run(path):
    """The last validation of a run, or the last line of training where that alone has the wanted figure; the method; and what was read."""
    lines = [line for line in json_lines(os.path.join(path, "metrics.jsonl")) if is_metrics(line)]
    valid = [line for line in lines if line.get("split") == "valid"]
    if not lines:
        stop(f"{path}: has no line of training or validation")
    with open(os.path.join(path, "config.toml"), "rb") as file:
        config = tomllib.load(file)
    last = [line for line in lines if line.get("split") == "train"][-1:]
    only_trained = not valid or (last and settings["metric"] in last[0] and settings["metric"] not in valid[-1])
    return (last or lines if only_trained else valid)[-1], config["forgetting"]["method"], read_by_run(config)


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
    """The same task or environment, or texts, in all; in all runs, and in all evaluations, also with the same settings or the same text,
    unless it was read in other units: then only figures of bytes and characters compare, which `metric` must be."""
    require_alike(points, lambda point: point.read.name)
    for units in dict.fromkeys(point.read.unit for point in points):
        for kind in (True, False):
            require_alike([p for p in points if os.path.isdir(p.path) == kind and p.read.unit == units], lambda point: point.read.settings)


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
    metric = common_figure([(point.path, [point.line]) for point in points], settings["metric"])
    if metric in PER_TOKEN:
        require_alike(points, lambda point: point.read.unit)
    mains = {point.path: figures_of(point.line)[0] for point in points}
    if not settings["metric"] and metric == "loss" and len(set(mains.values())) > 1:
        stop(f"these have different figures ({', '.join(dict.fromkeys(mains.values()))}), and nats of what they read are no common measure; "
             "plot them apart, or name a --metric")  # fmt: skip
    figure, axes = plt.subplots(figsize=(6.5, 4.5), layout="constrained")
    for i, series in enumerate(dict.fromkeys(point.series for point in points)):
        pairs = sorted((point.memory, point.line[metric]) for point in points if point.series == series)
        axes.plot(*zip(*pairs), color=COLOURS[i % 10], marker="o", markersize=4, linewidth=1.2, label=series)
    sizes = [point.memory for point in points]
    if min(sizes) > 0 and max(sizes) > 10 * min(sizes):
        logarithmic(axes)
    axes.set_xlabel("rows in memory, mean of the layers")
    axes.set_ylabel(NAMES.get(metric, metric))
    axes.legend(fontsize=8)
    return figure


save(picture(), settings)
