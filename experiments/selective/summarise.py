#!/usr/bin/env python3
"""Losses, budgets, times and memory of runs/selective/*: results.json and table.md.

    .venv/bin/python experiments/selective/summarise.py [RUNS]      # default: runs/selective

Where RUNS is not there, the table is made again from results.json. Budgets are chosen on training text; the table shows what they
cost on the test text, which the search has not seen.
"""

import json
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from run_metrics import read_lines  # noqa: E402

TEXTS = ("enwik8", "wikitext2")
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
        # On the text of the search; what these budgets cost on other text is not measured.
        own = ([r for r in found["rounds"] if r["loss"] <= found["chosen_on"]["loss_full"]] or found["rounds"][:1])[-1]
        result["at_its_own_loss"] = {"budgets": own["budgets"], "saved": found["full"] / own["total"]}
    return result


def collect(folder: pathlib.Path) -> dict:
    results = {}
    for text in TEXTS:
        runs = {name: folder / f"{text}_{name}" for name in NAMES}
        done = {name: run for name, run in runs.items() if (run / "metrics.jsonl").exists() and lines_of(run, "valid")}
        results[text] = {name: run_of(run) for name, run in done.items()}
    return results


def table(results: dict) -> str:
    heads = ["text", "attention", "validation loss", "test loss", "budgets", "test loss with budgets", "ms per update", "peak memory"]
    rows = [heads, ["---", "---", "---:", "---:", "---", "---:", "---:", "---:"]]
    for text, runs in results.items():
        standard = next((r["pruned"]["measured_on"]["loss_standard"] for r in runs.values() if "pruned" in r), None)
        for name, run in runs.items():
            pruned = run.get("pruned")
            test = pruned["measured_on"]["loss_full"] if pruned else standard
            cells = [text, NAMES[name], f"{run['validation'][-1]['loss']:.4f}", f"{test:.4f}" if test else ""]
            cells += [", ".join(map(str, pruned["budgets"])), f"{pruned['measured_on']['loss']:.4f}"] if pruned else ["", ""]
            rows.append(cells + [f"{run['ms_per_update_median']:.0f}", f"{run['peak_memory_mb']} MB"])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def main() -> None:
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "runs/selective")
    path = HERE / "results.json"
    if folder.exists():
        path.write_text(json.dumps(collect(folder), indent=1) + "\n")
    results = json.loads(path.read_text())
    (HERE / "table.md").write_text(table(results))
    print(table(results), end="")


if __name__ == "__main__":
    main()
