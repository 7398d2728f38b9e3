"""Killed at any moment and resumed, a run ends as one that nobody disturbed: same metrics, same weights, to the bit."""

import json
import random
import signal
import time
import unittest

import numpy
from program import ProgramTest, checkpoints, english, metrics, start
from safetensors import safe_open
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

# What a clock or the machine decides.
FREE = {"ms_per_update", "tokens_per_second", "resident_memory", "peak_memory"}

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


class Resume(ProgramTest):
    def setUp(self):
        super().setUp()
        self.whole, self.broken = self.folder / "whole", self.folder / "broken"

    def configure(self, data, *changes):
        """Writes a configuration and runs it once without a break."""
        text = self.write("text.txt", data["text"])
        fractions = {"data": {"split": data["split"]}} if "split" in data else {}
        self.config_file = self.config(text, OFTEN, fractions, *changes)
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

    def test_killed_with_all_that_is_random(self):
        self.check_killed(10, 1, LONG, RANDOM)

    def test_killed_with_adaptive_ends(self):
        self.check_killed(6, 4, LONG, ADAPTIVE)

    def test_killed_with_documents(self):
        self.check_killed(6, 5, LONG, DOCUMENTS)

    def test_killed_with_fixed_span(self):
        self.check_killed(6, 2, LONG, FIXED)

    def test_killed_over_several_passes(self):
        self.check_killed(8, 3, SHORT)
        # TensorBoard too shows each number once, whatever the killed runs had written.
        events = EventAccumulator(str(self.broken / "tensorboard"))
        events.Reload()
        for split in ("train", "valid"):
            shown = [(event.step, event.value) for event in events.Scalars(f"{split}/loss")]
            lines = [line for line in metrics(self.whole) if line["split"] == split]
            self.assertEqual(shown, [(line["update"], numpy.float32(line["loss"])) for line in lines])

    def test_interrupted(self):
        for data, changes in ((LONG, RANDOM), (SHORT, FIXED)):
            with self.subTest(changes=changes):
                self.setUp()
                self.configure(data, changes)
                for pause in (0, 0.02, 0.07):
                    process = self.start()
                    self.wait_for_progress(process)
                    time.sleep(pause)
                    process.send_signal(signal.SIGINT)
                    self.end(process, 130)
                    saved = newest_checkpoint(self.broken)[2]["update"]
                    self.assertGreaterEqual(saved, max((line["update"] for line in metrics(self.broken)), default=0))
                self.end(self.start(), 0)
                self.assert_same_run()

    def test_a_finished_run_goes_on(self):
        """Resumed without change it has nothing to do; with more updates it is as if it had always had them."""
        self.configure(LONG, {"train": {"updates": 40}})
        arguments = ("train", self.config_file, "--out", self.broken, "--quiet")
        self.succeed(*arguments, "--set", "train.updates=20")
        before = recorded(self.broken)
        self.succeed(*arguments, "--set", "train.updates=20", "--resume")
        self.assertEqual(recorded(self.broken), before)
        self.succeed(*arguments, "--resume")
        self.assert_same_run()


if __name__ == "__main__":
    unittest.main()
