"""What experiments read from a run: the numbers of RUN/metrics.jsonl, times from RUN-timing where that run exists (made on
a quiet machine from the trained weights), else from RUN, and the settings that tell what a run of a task is of."""

import json
import statistics
import sys
import tomllib


def read_lines(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def read_eval(path):
    """What `lapse eval --json` wrote to this file. Ends the program where the evaluation did not read the whole part."""
    found = json.loads(path.read_text())
    if found.get("complete") is not True:
        sys.exit(f"{path}: an evaluation that did not reach its end; delete it and run the experiment again")
    return found


def eval_summary(path):
    """Of such a file: bits per byte, and the memory size as a mean of the layers."""
    found = read_eval(path)
    memory = statistics.mean(layer["memory_mean"] for layer in found["layers"])
    return {"bpb": round(found["bpb"], 4), "memory_mean": round(memory, 1), "complete": found["complete"]}


def settings(run):
    """What RUN/config.toml says of the training, the model, the method and the task; a method's and a task's options go by its name."""
    config = tomllib.loads((run / "config.toml").read_text())
    task, method = config["data"]["task"], config["forgetting"]["method"]
    train = {key: config["train"][key] for key in ("updates", "batch", "block", "precision")}
    return train | {key: config[key] for key in ("optimiser", "model", method, task)}


def summarise(run, config):
    lines = read_lines(run)
    valid = [line for line in lines if line["split"] == "valid"]
    timing = run.parent / f"{run.name}-timing"
    timed = [line for line in read_lines(timing if timing.exists() else run) if line["split"] == "train"]
    return {
        "config": config,
        "updates": lines[-1]["update"],
        "validation_bpb": {line["update"]: round(line["bpb"], 4) for line in valid},
        "memory_mean_per_layer": [round(layer["memory_mean"], 1) for layer in valid[-1]["layers"]],
        "memory_max_per_layer": [layer["memory_max"] for layer in valid[-1]["layers"]],
        "ms_per_update_median": round(statistics.median(line["ms_per_update"] for line in timed), 1),
        "tokens_per_second_median": round(statistics.median(line["tokens_per_second"] for line in timed)),
        "peak_memory_bytes": max(line["peak_memory"] for line in timed),
        "timed_alone": timing.exists(),
    }
