"""Runs that must be the same to the bit, whatever happened to one of them on the way; shared by the tests of resuming."""

import json
import random
import signal
import time

from program import TINY, ProgramTest, checkpoints, english, merged, metrics, start, toml
from safetensors import safe_open

# What a clock or the machine decides.
FREE = {"ms_per_update", "tokens_per_second", "steps_per_second", "resident_memory", "peak_memory"}

OFTEN = {"train": {"updates": 150, "log_every": 4, "checkpoint_every": 3, "validate_every": 10}}
LONG = {"text": english(6000)}
SHORT = {"text": english(400), "split": [0.6, 0.2, 0.2]}  # a pass takes 14 blocks, and then memory restarts

# Everything that draws random numbers or keeps something between updates.
RANDOM = {
    "model": {"dropout": 0.2, "layer_drop": 0.3},
    "expire_span": {"random_drop": True, "initial_fraction": 0.4},
    "train": {"batch": 4, "parts": 2, "threads": 2},
    "optimiser": {"schedule": "cosine"},
}
FIXED = {
    "forgetting": {"method": "fixed_span"},
    "fixed_span": {"initial_memory": "zeros"},
    "model": {"dropout": 0.1, "norm": "pre"},
    "optimiser": {"name": "sgd", "momentum": 0.9, "rate": 0.1},
}

DOCUMENTS = {
    "data": {"documents": "lines"},
    "forgetting": {"method": "selective_attention"},
    "selective_attention": {"memory_loss": 0.1},
    "train": {"batch": 4, "parts": 2},
}

ADAPTIVE = {
    "data": {"unit": "word"},
    "model": {"input": "adaptive", "output": "adaptive", "embedding_dropout": 0.2, "output_dropout": 0.2},
    "adaptive": {"cutoffs": [6, 20]},
    "train": {"batch": 4, "parts": 2},
}

# Every method that forgets in training, with spans that end within these runs (same_run_test.py compares the program's list).
METHODS = {
    "fixed_span": {"fixed_span": {"max_span": 12}},
    "adaptive_span": {"adaptive_span": {"max_span": 24, "ramp": 4}},
    "compressive": {"compressive": {"max_span": 8, "rate": 2, "size": 4}},
    "expire_span": {},
    "selective_attention": {"selective_attention": {"memory_loss": 0.1}},
    "local_global": {"local_global": {"every": 2, "window": 4}},
    "strided": {},
    "local": {"local": {"window": 12}},
    "sink_window": {"sink_window": {"sinks": 2, "window": 8}},
}
AFTER_TRAINING = {"h2o", "tova"}  # in training these keep all of the newest L


def recorded(run):
    """The lines of metrics.jsonl without what may differ."""
    return [{key: value for key, value in line.items() if key not in FREE} for line in metrics(run)]


def newest_checkpoint(run):
    """Its name, the bytes, type and shape of its tensors, and its state."""
    newest = checkpoints(run)[0]
    with safe_open(newest, "numpy") as file:
        values = {name: file.get_tensor(name) for name in file.keys()}
        state = json.loads(file.metadata()["state"])
    return newest.name, {name: (v.tobytes(), v.dtype, v.shape) for name, v in values.items()}, state


class KilledRun(ProgramTest):
    """A run without a break, and one that is killed and resumed."""

    def setUp(self):
        super().setUp()
        self.whole, self.broken = self.folder / "whole", self.folder / "broken"

    def configure(self, data, *changes):
        """Writes a configuration and runs it once without a break. `data`: None where the run makes its own."""
        if data:
            text = self.write("text.txt", data["text"])
            split = {"split": data["split"]} if "split" in data else {}
            changes = ({"data": {"path": str(text), **split}}, *changes)
        self.config_file = self.write("config.toml", toml(merged(TINY, OFTEN, *changes)))
        self.succeed("train", self.config_file, "--out", self.whole, "--quiet")

    def start(self):
        return start("train", self.config_file, "--out", self.broken, "--resume", "--quiet")

    def end(self, process, status):
        output, errors = process.communicate(timeout=60)
        self.assertEqual((process.returncode, output, errors), (status, "", ""))

    def checkpoint_files(self):
        folder = self.broken / "checkpoints"
        return {path.name for path in folder.iterdir()} if folder.exists() else set()

    def wait_for(self, process, sign):
        while process.poll() is None and not sign():
            time.sleep(0.0005)

    def wait_for_progress(self, process):
        before = self.checkpoint_files()
        self.wait_for(process, lambda: self.checkpoint_files() - before)

    def wait_somewhere(self, process, draw):
        """Until a random moment: most often at work, sometimes while the program starts, sometimes while it writes."""
        kind = draw.random()
        if kind < 0.15:
            time.sleep(draw.uniform(0, 0.4))
        elif kind < 0.4:
            self.wait_for_progress(process)
            self.wait_for(process, lambda: any(name.endswith(".partial") for name in self.checkpoint_files()))
        else:
            self.wait_for_progress(process)
            time.sleep(draw.uniform(0, 0.2))

    def assert_same_run(self):
        ours, theirs = recorded(self.broken), recorded(self.whole)
        for line, other in zip(ours, theirs):
            self.assertEqual(line, other)
        self.assertEqual(len(ours), len(theirs))
        name, tensors, state = newest_checkpoint(self.broken)
        whole_name, whole_tensors, whole_state = newest_checkpoint(self.whole)
        self.assertEqual((name, state), (whole_name, whole_state))
        self.assertEqual(tensors.keys(), whole_tensors.keys())
        for key in tensors:
            self.assertTrue(tensors[key] == whole_tensors[key], key)
        # Nothing half written is left behind either.
        self.assertEqual(self.checkpoint_files(), {path.name for path in checkpoints(self.whole)})
        self.assertEqual((self.broken / "config.toml").read_text(), (self.whole / "config.toml").read_text())

    def check_killed(self, kills, seed, data, *changes):
        self.configure(data, *changes)
        draw = random.Random(seed)
        while kills > 0:
            process = self.start()
            self.wait_somewhere(process, draw)
            process.kill()
            _, errors = process.communicate()
            self.assertEqual(errors, "")
            if process.returncode == 0:  # on a fast machine the run may end first: begin another
                self.assert_same_run()
                self.broken = self.folder / f"broken{kills}"
                continue
            self.assertEqual(process.returncode, -signal.SIGKILL)
            kills -= 1
        self.end(self.start(), 0)
        self.assert_same_run()
