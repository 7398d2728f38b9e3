"""Loss against memory as `lapse prune` lowered the budgets (Figure 6 of the Selective Attention paper), from prune.json files. All must be of the
same text, or a curve would lie lower because its text is easier."""

import itertools

MARKS = {"o": "at the loss to reach", "s": "at the model's own loss", "x": "the same on other text (shifted: equal without budgets)"}


class Read:
    """What losses are of, as far as a file says it: the settings of a search, or what it measured on. An option is written where it was given."""

    def __init__(self, said):
        self.checksum, self.tokens = said.get("text"), said.get("tokens")
        if not isinstance(self.checksum, (int, type(None))):
            raise ValueError
        self.part = {name: said.get(name) for name in ("split", "data", "data_documents", "min_fill")}

    def __str__(self):
        checksum = None if self.checksum is None else f"{self.checksum:08x}"
        return ", ".join(f"{name} {value}" for name, value in (*self.part.items(), ("tokens", self.tokens), ("checksum", checksum)) if value)

    def is_like(self, other):
        """Where both know it, the checksum decides: it is of the tokens, wherever they lie, and of the documents that are read."""
        if None not in (self.tokens, other.tokens) and self.tokens != other.tokens:
            return False
        if None not in (self.checksum, other.checksum):
            return self.checksum == other.checksum
        return not self.part["split"] or not other.part["split"] or self.part == other.part


class Search:
    """What a file says: the curve, as rows and losses, and the marks (kind, rows, loss)."""

    def __init__(self, label, path):
        self.label, self.path, self.marks = label, path, []
        try:
            with open(path, encoding="utf-8") as file:
                found = json.load(file)
            self.read, self.elsewhere = Read(found["settings"]), Read(found.get("measured_on", {}))
            layers = len(found["rounds"][0]["budgets"])
            self.rows = [one["total"] / layers for one in found["rounds"]]
            self.losses = [one["loss"] for one in found["rounds"]]
            self.threshold = found.get("threshold")
            if self.threshold is None:  # the search has not ended
                return
            chosen, other = found["chosen_on"], found["measured_on"]
            shift = chosen["loss_full"] - other["loss_full"]
            if chosen["loss"] <= self.threshold:  # else no budgets reach it
                self.mark("o", found["total"] / layers, chosen["loss"], other["loss"] + shift)
            if own := found.get("at_own_loss"):
                self.mark("s", own["total"] / layers, own["chosen_on"], own["measured_on"] + shift)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, ZeroDivisionError):
            stop(f"{path}: not a whole file of `lapse prune`")

    def mark(self, kind, rows, loss, elsewhere):
        self.marks += [(kind, rows, loss), ("x", rows, elsewhere)]

    def draw(self, axes, colour, limits):
        """A loss to reach that lies far away is told, since its line would make the curve flat."""
        low, high = limits
        label = shortened(self.label, 36)
        if self.threshold is not None and low <= self.threshold <= high:
            axes.axhline(self.threshold, color=colour, linewidth=0.8, linestyle=":")
            label += " (dotted: the loss to reach)"
        elif self.threshold is not None:
            label += f" (loss to reach: {self.threshold:.4g})"
        axes.plot(self.rows, self.losses, color=colour, linewidth=1.2, label=label)
        for kind, rows, loss in self.marks:
            axes.plot(rows, loss, kind, color=colour, markersize=6 if kind == "x" else 5)
        return label


def picture():
    searches = [Search(label, path) for label, path in settings["inputs"]]
    for one, other in itertools.combinations(searches, 2):
        for a, b, what in ((one.read, other.read, "budgets were chosen"), (one.elsewhere, other.elsewhere, "losses were measured")):
            if not a.is_like(b):
                stop(f"{what} on different texts: {one.path} on {a}, {other.path} on {b}; plot them apart")
    figure, axes = plt.subplots(figsize=(6.5, 4.5), layout="constrained")
    drawn = [loss for search in searches for loss in search.losses + [loss for _, _, loss in search.marks]]
    apart = max(drawn) - min(drawn) or 0.01
    limits = (min(drawn) - apart, max(drawn) + apart)
    labels = [search.draw(axes, colour, limits) for colour, search in zip(colours(len(searches)), searches)]
    for kind in MARKS:
        if any(mark[0] == kind for search in searches for mark in search.marks):
            axes.plot([], [], kind, color="grey", markersize=5, label=MARKS[kind])
    logarithmic(axes)
    axes.set_xlabel("rows in memory, mean of the layers' budgets")
    axes.set_ylabel(NAMES["loss"])
    legend(axes, whole={*labels, *MARKS.values()})
    return figure


save(picture(), settings)
