#!/usr/bin/env python3
"""Losses, budgets, times and memory of runs/selective/*, as results.json and as Markdown tables."""
import json
import pathlib
import statistics

RUNS = pathlib.Path("runs/selective")
NAMES = {"standard": "standard", "selective": "selective", "selective_memory_loss": "selective, memory loss 0.1"}


def run_of(folder: pathlib.Path) -> dict:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    train = [line for line in lines if line["split"] == "train"]
    valid = [line for line in lines if line["split"] == "valid"]
    result = {
        "updates": train[-1]["update"],
        "validation": [{"update": v["update"], "loss": v["loss"]} for v in valid],
        "ms_per_update_median": round(statistics.median(line["ms_per_update"] for line in train), 1),
        "peak_memory_mb": round(max(line["peak_memory"] for line in train) / 1e6),
    }
    pruned = folder / "prune.json"
    if pruned.exists() and "budgets" in (found := json.loads(pruned.read_text())):
        keys = ("threshold", "budgets", "total", "full", "saved", "chosen_on", "measured_on")
        result["pruned"] = {key: found[key] for key in keys}
        result["curve"] = [[r["total"], round(r["loss"], 5)] for r in found["rounds"]]
    return result


def main() -> None:
    results = {}
    for text in ("enwik8", "wikitext2"):
        runs = {name: RUNS / f"{text}_{name}" for name in NAMES}
        results[text] = {name: run_of(folder) for name, folder in runs.items() if (folder / "metrics.jsonl").exists()}
        if not results[text]:
            continue
        print(f"\n{text}\n\n| attention | validation loss | ms per update | peak memory | budgets | rows | loss with them |")
        print("|---|---:|---:|---:|---|---:|---:|")
        for name, run in results[text].items():
            pruned = run.get("pruned")
            cells = [NAMES[name], f"{run['validation'][-1]['loss']:.4f}", f"{run['ms_per_update_median']:.0f}"]
            cells.append(f"{run['peak_memory_mb']} MB")
            if pruned:
                measured = pruned["measured_on"]
                cells += [", ".join(map(str, pruned["budgets"])), f"{pruned['full']} / {pruned['total']} = {pruned['saved']:.1f}"]
                cells.append(f"{measured['loss']:.4f} (standard {measured['loss_standard']:.4f})")
            else:
                cells += ["", "", ""]
            print("| " + " | ".join(cells) + " |")
    pathlib.Path("experiments/selective/results.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
