"""Loss against memory as `lapse prune` lowered the budgets (Figure 6 of the Selective Attention paper), from prune.json files."""


def mark_measured(axes, rows, loss, colour):
    if is_number(loss):
        axes.plot(rows, loss, "x", color=colour, markersize=6)


def picture():
    figure, axes = plt.subplots(figsize=(6.5, 4.5), layout="constrained")
    for i, (label, path) in enumerate(settings["inputs"]):
        try:
            with open(path, encoding="utf-8") as file:
                found = json.load(file)
            rounds = [(one["total"], one["loss"]) for one in found["rounds"]]
            layers = len(found["rounds"][0]["budgets"])
        except (ValueError, KeyError, TypeError, IndexError):
            stop(f"{path}: not a whole file of `lapse prune`")
        colour = COLOURS[i % 10]
        axes.plot([total / layers for total, _ in rounds], [loss for _, loss in rounds], color=colour, linewidth=1.2, label=label)
        if is_number(found.get("threshold")):
            axes.axhline(found["threshold"], color=colour, linewidth=0.8, linestyle=":")
            if found["chosen_on"]["loss"] <= found["threshold"]:  # else no budgets reach it
                axes.plot(found["total"] / layers, found["chosen_on"]["loss"], "o", color=colour, markersize=5)
            mark_measured(axes, found["total"] / layers, found["measured_on"]["loss"], colour)
        if own := found.get("at_own_loss"):
            axes.plot(own["total"] / layers, own["chosen_on"], "s", color=colour, markersize=5)
            mark_measured(axes, own["total"] / layers, own["measured_on"], colour)
    for mark, meaning in (("o", "at the loss to reach (dotted)"), ("s", "at the model's own loss"), ("x", "the same budgets on other text")):
        axes.plot([], [], mark, color="grey", markersize=5, label=meaning)
    logarithmic(axes)
    axes.set_xlabel("rows in memory, mean of the layers' budgets")
    axes.set_ylabel(NAMES["loss"])
    axes.legend(fontsize=8)
    return figure


save(picture(), settings)
