"""Selective Attention on documents: its ablations (A.3 to A.5), sizes and contexts (Figure 3), attention heads (Figure 4), patterns that are
trained, and budgets that are not (Table 6, Figure 7) (experiments/documents/run.sh).

Names are dD-CONTEXT-WHAT-SEED: D layers of width 64 D with D heads, windows of CONTEXT pieces of text.
"""

import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import sweep  # noqa: E402

CONFIG = "experiments/documents/base.toml"
STANDARD = {"forgetting.method": "fixed_span"}
MEMORY_LOSS = {"selective_attention.memory_loss": 0.1}  # Eq. 2
ABLATIONS = {
    "no_shift": {"selective_attention.shift": False},  # Table 3
    "mask_first": {"selective_attention.mask_first": True},  # Table 4
    "mask_self": {"selective_attention.mask_self": True},  # Table 5
    "separate": {"selective_attention.separate": True},  # Table 2
    "no_relu": {"selective_attention.relu": False},  # diverges in the paper
}
WINDOWS = (16, 32, 64, 128, 192)  # of 256, as the paper's 32 ... 480 of 512
READ_WITH = ("local", "sink_window", "h2o", "tova")  # the standard model, without training
READ_WITH_FEWER = {
    kind: [f"d4-256-{kind}-1", f"d2-256-{kind}_relative-1", f"d4-256-{kind}_relative-1", f"d4-256-{kind}_relative-2"] for kind in ("selective", "standard")
}


def at_own_loss(found):
    return found["at_own_loss"] or found | {"measured_on": found["measured_on"]["loss"]}


MEMORY = {
    "standard model's loss, test": lambda found: f"{found['measured_on']['loss_standard']:.4f}",
    "own loss, all rows": lambda found: f"{found['measured_on']['loss_full']:.4f}",
    "budgets for the first": lambda found: ", ".join(map(str, found["budgets"])),
    "memory saved": lambda found: f"{found['saved']:.1f} times",
    "loss with them": lambda found: f"{found['measured_on']['loss']:.4f}",
    "memory saved at its own loss": lambda found: f"{at_own_loss(found)['saved']:.1f} times",
    "loss with these": lambda found: f"{at_own_loss(found)['measured_on']:.4f}",
}


def sized(size, context):
    method_span = {"selective_attention.max_span": context, "fixed_span.max_span": context}
    model = {"model.width": 64 * size, "model.layers": size, "model.heads": size}
    return model | {"train.block": context} | method_span  # an update reads 16 documents, or their beginnings, whatever the context


def rate_of(kind):
    """The part of a run's kind that names its learning rate, if it is not the base's."""
    found = re.search(r"_rate_[^_]+", kind)
    return found[0] if found else ""


def positions_of(kind):
    """The end of a run's kind that names its positions, if they are not the base's."""
    return next((end for end in ("_relative", "_buckets") if kind.endswith(end)), "")


def wanted():
    """(name, what it changes of the base), the most telling first."""
    both = {"selective": {}, "standard": STANDARD}
    for seed in (1, 2, 3):
        yield from ((f"d2-256-{name}-{seed}", {"train.seed": seed} | values) for name, values in (both | ABLATIONS).items())
    for rate in ("2.5e-3", "1e-2", "2e-2"):  # is the base's 5e-3 as good for one as for the other?
        yield from ((f"d2-256-{name}_rate_{rate}-1", {"optimiser.rate": float(rate)} | values) for name, values in both.items())
    for name, values in both.items():  # is standard attention held back by positions that are learned one by one?
        relative = {"model.positions": "relative"} | values
        yield from ((f"d2-256-{name}_relative-{seed}", {"train.seed": seed} | relative) for seed in (1, 2, 3))
        yield f"d2-256-{name}_buckets-1", values | {"model.positions": "buckets"}
        yield from ((f"d{size}-256-{name}_relative-1", sized(size, 256) | relative) for size in (3, 5, 6))
        yield from ((f"d4-256-{name}_relative-{seed}", {"train.seed": seed} | sized(4, 256) | relative) for seed in (1, 2, 3))
    for positions in ({}, {"model.positions": "relative"}):  # how the gap changes with updates
        end = "_relative" if positions else ""
        yield from ((f"d2-256-{name}_20k{end}-1", {"train.updates": 20000} | positions | values) for name, values in both.items())
    for heads in (3, 4, 8, 16):  # Figure 4: attention of width 64 times the heads
        more = {"model.heads": heads, "model.head_dim": 64}
        yield f"d2-256-standard_{heads}_heads-1", STANDARD | more
        yield from ((f"d2-256-{name}_{heads}_heads_relative-1", {"model.positions": "relative"} | more | values) for name, values in both.items())
    for context in (512, 1024, 2048):  # Figure 3; memory at equal loss, section 6
        kinds = {"standard": STANDARD, "selective": {}, "memory_loss": MEMORY_LOSS}
        yield from ((f"d2-{context}-{name}-1", sized(2, context) | values) for name, values in kinds.items())
        relative = {"model.positions": "relative"}
        yield from ((f"d2-{context}-{name}_relative-1", sized(2, context) | relative | values) for name, values in kinds.items())
    for size in (3, 4, 5, 6):
        yield from ((f"d{size}-256-{name}-1", sized(size, 256) | values) for name, values in both.items())
    for window in WINDOWS:  # Table 6; four layers are one turn of three local ones and a global one
        for method in ("local", "local_global"):
            pattern = {"forgetting.method": method, f"{method}.max_span": 256, f"{method}.window": window}
            yield f"d4-256-{method}_{window}-1", sized(4, 256) | pattern
        local = {"forgetting.method": "local", "local.max_span": 256, "local.window": window}
        yield f"d2-256-local_{window}_relative-1", {"model.positions": "relative"} | local
    sparse = {"forgetting.method": "strided", "strided.max_span": 256, "strided.window": 32, "strided.stride": 8}
    yield "d4-256-strided_32_8-1", sized(4, 256) | sparse
    yield "d2-256-strided_32_8_relative-1", {"model.positions": "relative"} | sparse


def readings(name):
    """Options of `lapse eval`: all documents, those that fill the window, and of some models with fewer rows (Figure 7)."""
    found = {"test": [], "filled": ["--min-fill=0.9"]}
    if name.split("-")[1] != "256":
        found |= {"first_256": ["--block=256"]}  # the pieces that are read with every window
    if name in READ_WITH_FEWER["selective"]:
        found |= {f"budget_{rows}": [f"--budget={rows}"] for rows in WINDOWS}
    if name in READ_WITH_FEWER["standard"]:
        found |= {f"{method}_{rows}": [f"--method={method}", f"--budget={rows}"] for method in READ_WITH for rows in WINDOWS}
    return found


def budgets(name):
    """Options of `lapse prune`: memory at the standard model's loss and at the run's own, on all documents and on those that fill the window."""
    size_context, kind, seed = name.rsplit("-", 2)
    if size_context not in ("d2-512", "d2-1024", "d2-2048") or kind.startswith("standard"):
        return {}
    against = f"{size_context}-standard{positions_of(kind)}-{seed}"
    return {"budgets": [against, "--tokens=32768"], "budgets_filled": [against, "--tokens=32768", "--min-fill=0.9"]}


def fewer_rows(results):
    """Table 6 and Figure 7 without training: the losses of models that are read with at most so many rows in a layer."""
    rows = {}
    for selective, standard in zip(READ_WITH_FEWER["selective"], READ_WITH_FEWER["standard"]):
        for name, reading in [(selective, "budget")] + [(standard, method) for method in READ_WITH]:
            if result := results.get(name):
                found = result["evaluation"]
                if f"{reading}_{WINDOWS[0]}" not in found:
                    continue  # not read so yet
                losses = {n: found[f"{reading}_{n}"]["loss"] for n in WINDOWS} | {256: found["test"]["loss"]}
                rows[f"{name}, {reading.replace('budget', 'its budgets')}"] = losses
    sweep.table(HERE, rows, {str(n): lambda losses, n=n: f"{losses[n]:.4f}" for n in (*WINDOWS, 256)}, name="fewer_rows")


def runs():
    files = {"data.path": str(pathlib.Path(sweep.given("LAPSE_DATA")) / "wikipedia.txt.gz"), "data.tokenizer": sweep.given("LAPSE_PIECES")}
    for name, values in wanted():
        yield sweep.Run(name, CONFIG, values, readings(name), budgets(name), files)


def main():
    results = sweep.main(HERE, list(runs()), __doc__)

    def behind(result):
        """How far it is behind selective attention of the same size, context, rate, updates, positions and seed."""
        size, context, named = result["name"].split("-", 2)
        kind, seed = named.rsplit("-", 1)  # a rate has a hyphen of its own
        updates = "_20k" if "_20k" in kind else ""
        base = results.get(f"{size}-{context}-selective{rate_of(kind)}{updates}{positions_of(kind)}-{seed}")
        return "" if base is None else f"{result['evaluation']['test']['loss'] - base['evaluation']['test']['loss']:+.4f}"

    for name, result in results.items():
        result["name"] = name
    columns = {
        "nats per piece, test": sweep.measured("loss", "{:.4f}"),
        "behind selective": behind,
        "nats per piece, windows filled to 90 %": sweep.measured("loss", "{:.4f}", reading="filled"),
        "first 256 of each document": lambda result: f"{result['evaluation'].get('first_256', result['evaluation']['test'])['loss']:.4f}",
        "halfway, validation": lambda result: f"{result['validation'][len(result['validation']) // 2 - 1]['loss']:.4f}",
    }
    sweep.table(HERE, results, columns)
    pruned = {}
    for name, result in results.items():
        for documents, found in result.get("budgets", {}).items():
            pruned[name + (", filled to 90 %" if documents == "budgets_filled" else "")] = found
    sweep.table(HERE, pruned, MEMORY, name="memory")
    fewer_rows(results)


if __name__ == "__main__":
    main()
