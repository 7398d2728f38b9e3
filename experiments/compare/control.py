#!/usr/bin/env python3
"""Turns the runs of experiments/compare/control.sh into results/control.json and control.md, beside the budgets of results.json.

    .venv/bin/python experiments/compare/control.py [RUNS]      # default: runs/compare/control
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from run_metrics import eval_summary, read_lines  # noqa: E402

NAMES = {
    "selective_attention_16": "selective attention, trained with L = 16",
    "fixed_span_32": "fixed span, trained with L = 32",
    "fixed_span_16": "fixed span, trained with L = 16",
}


def measured(run):
    """Read in 64 streams; and the last validation of the training, in 16."""
    valid = [line for line in read_lines(run) if line["split"] == "valid"][-1]
    return eval_summary(run.parent / f"{run.name}.json") | {"updates": valid["update"], "validation_bpb": round(valid["bpb"], 4)}


def table(control, budgets):
    rows = ["| model | bits per byte | memory size |", "|---|---|---|"]
    selective = budgets["budgets"]["selective_attention"]["16"]
    known = {"selective attention, trained with L = 512, budget 16": selective}
    known["fixed span, trained with L = 512, all its rows"] = budgets["unpruned"]["standard"]
    for name, r in {**known, **{NAMES[name]: r for name, r in control.items()}}.items():
        rows.append(f"| {name} | {r['bpb']:.3f} | {r['memory_mean']:.0f} |")
    return "\n".join(rows) + "\n"


def main():
    runs = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "runs/compare/control")
    target = HERE / "results" / "control.json"
    if runs.exists():
        target.write_text(json.dumps({name: measured(runs / name) for name in NAMES}, indent=1) + "\n")
    budgets = json.loads((HERE / "results" / "results.json").read_text())
    (HERE / "results" / "control.md").write_text(table(json.loads(target.read_text()), budgets))


if __name__ == "__main__":
    main()
