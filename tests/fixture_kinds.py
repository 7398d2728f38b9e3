"""Small runs of every kind, whose checkpoints are kept for each version (tests/fixtures/VERSION), and what is read of them."""

import json
import pathlib
import re
import shutil

from agent_run import CORRIDOR
from program import TINY, checkpoints, lapse, merged, metrics, toml
from prune_test import SELECTIVE
from same_run import ADAPTIVE, METHODS
from span_cli_test import SPANS
from task_cli_test import TASKS

FIXTURES = pathlib.Path(__file__).resolve().parent / "fixtures"
SMALL = {"model": {"width": 8, "feed_forward": 16}, "train": {"updates": 12, "log_every": 4, "checkpoint_every": 6, "keep": 1}}
TEXT = {"data": {"path": "text.txt"}}
SUBWORDS = {"data": {"unit": "subword", "tokenizer": "a.model", "documents": "lines", "split": [0.6, 0.2, 0.2]}}

# name -> changes of the tiny run. Together: every trained method, unit, input, output, kind of data, optimiser and precision.
KINDS = {
    "expire_span": (TEXT, {"model": {"dropout": 0.1}, "expire_span": {"initial_fraction": 0.4}}),
    "selective_attention": (TEXT, SELECTIVE, {"data": {"path": "text.txt", "unit": "character"}, "train": {"block": 32},
                                              "selective_attention": {"max_span": 32}}),
    "adaptive_span": (TEXT, ADAPTIVE, {"data": {"split": [0.6, 0.2, 0.2]}, "adaptive": {"factor": 2}, "forgetting": {"method": "adaptive_span"}}, METHODS["adaptive_span"]),
    "compressive": (TEXT, {"forgetting": {"method": "compressive"}, "optimiser": {"name": "adamw"}}, METHODS["compressive"]),
    "fixed_span": (TEXT, SUBWORDS, {"forgetting": {"method": "fixed_span"}, "optimiser": {"name": "sgd", "momentum": 0.9}}),
    "local_global": (TEXT, {"forgetting": {"method": "local_global"}, "train": {"precision": "bf16"}}, METHODS["local_global"]),
    "strided": (TEXT, {"forgetting": {"method": "strided"}, "optimiser": {"name": "rmsprop"}}),
    "encoder_decoder": (TEXT, SPANS, {"model": {"width": 8, "feed_forward": 16}}),
    "collision": ({"data": {"task": "collision"}, "collision": TASKS["collision"][0], "train": {"block": 16}},),
    "corridor": (CORRIDOR,),
}


def config_of(kind):
    return toml(merged(TINY, SMALL, *KINDS[kind], {"train": {"updates": 12, "checkpoint_every": 6}}))


def succeed(folder, *arguments):
    done = lapse(*arguments, cwd=folder)
    assert done.returncode == 0, f"lapse {' '.join(map(str, arguments))}: {done.returncode}\n{done.stderr}"
    return done.stdout


def figures(values):
    """Numbers of a JSON object that neither a clock nor the machine decides."""
    return {key: value for key, value in values.items() if isinstance(value, (int, float)) and not re.search("second|ms_per|peak_memory", key)}


def reading(folder, checkpoint):
    """What a version must find in a checkpoint: its parameters, its evaluation, and the losses of updates that go on from it. No losses
    where this processor cannot train it: bfloat16 wants AVX-512 BF16."""
    run = folder / "resumed"
    (run / "checkpoints").mkdir(parents=True)
    shutil.copy(checkpoint, run / "checkpoints" / "update-00000012.safetensors")
    found = {"parameters": json.loads(succeed(folder, "info", checkpoint, "--json"))["parameters"]}
    more = ["--episodes=20"] if checkpoint.stem == "corridor" else ["--data=text.txt"] if TEXT in KINDS[checkpoint.stem] else []
    found["eval"] = figures(json.loads(succeed(folder, "eval", checkpoint, "--json", *more)))
    (folder / "config.toml").write_text(config_of(checkpoint.stem))
    train = ["train", "config.toml", "--out", run, "--resume", "--quiet", "--set=train.updates=20", "--set=train.validate_every=0"]
    if "needs a processor that multiplies bfloat16" in lapse(*train, cwd=folder).stderr:
        return found
    succeed(folder, *train)
    found["losses"] = [line["loss"] for line in metrics(run)]
    assert checkpoints(run)[0].stem == "update-00000020"
    return found
