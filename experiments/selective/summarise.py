#!/usr/bin/env python3
"""Losses, budgets, times and memory of runs/selective/*, as results.json and as Markdown tables."""
import json
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from run_metrics import read_lines  # noqa: E402

RUNS = pathlib.Path("runs/selective")
NAMES = {"standard": "standard", "selective": "selective", "selective_memory_loss": "selective, memory loss 0.1"}


def lines_of(folder: pathlib.Path, split: str) -> list[dict]:
    return [line for line in read_lines(folder) if line["split"] == split]


def run_of(folder: pathlib.Path) -> dict:
    train, valid = lines_of(folder, "train"), lines_of(folder, "valid")
    timing = folder.with_name(folder.name + "-timing")
    timed = lines_of(timing, "train") if timing.exists() else train
    result = {
        "updates": train[-1]["update"],
        "validation": [{"update": v["update"], "loss": v["loss"]} for v in valid],
        "ms_per_update_median": round(statistics.median(line["ms_per_update"] for line in timed), 1),
        "peak_memory_mb": round(max(line["peak_memory"] for line in timed) / 1e6),
        "timed_alone": timing.exists(),
    }
    pruned = folder / "prune.json"
    if pruned.exists() and "budgets" in (found := json.loads(pruned.read_text())):
        keys = ("threshold", "budgets", "total", "full", "saved", "chosen_on", "measured_on")
        result["pruned"] = {key: found[key] for key in keys}
        result["curve"] = [[r["total"], round(r["loss"], 5)] for r in found["rounds"]]
        own = ([r for r in found["rounds"] if r["loss"] <= found["chosen_on"]["loss_full"]] or found["rounds"][:1])[-1]
        result["at_its_own_loss"] = {"budgets": own["budgets"], "saved": found["full"] / own["total"]}
    return result


def main() -> None:
    results = {}
    for text in ("enwik8", "wikitext2"):
        runs = {name: RUNS / f"{text}_{name}" for name in NAMES}
        done = {name: folder for name, folder in runs.items() if (folder / "metrics.jsonl").exists() and lines_of(folder, "valid")}
        results[text] = {name: run_of(folder) for name, folder in done.items()}
        if not results[text]:
            continue
        print(f"\n{text}\n\n| attention | validation loss | ms per update | peak memory | budgets at its own loss | at the standard's | test loss: full, with these |")
        print("|---|---:|---:|---:|---|---|---:|")
        for name, run in results[text].items():
            pruned = run.get("pruned")
            cells = [NAMES[name], f"{run['validation'][-1]['loss']:.4f}", f"{run['ms_per_update_median']:.0f}"]
            cells.append(f"{run['peak_memory_mb']} MB")
            if pruned:
                own, measured = run["at_its_own_loss"], pruned["measured_on"]
                cells.append(f"{', '.join(map(str, own['budgets']))}: {own['saved']:.0f} times less")
                cells.append(f"{', '.join(map(str, pruned['budgets']))}: {pruned['saved']:.0f} times less")
                cells.append(f"{measured['loss_full']:.4f}, {measured['loss']:.4f} (standard {measured['loss_standard']:.4f})")
            else:
                cells += ["", "", ""]
            print("| " + " | ".join(cells) + " |")
    pathlib.Path("experiments/selective/results.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
