"""`lapse info`: what it says of a run, from its checkpoint, its metrics and its memory."""

import json
import os
import pathlib
import shutil
import unittest

from hostile_test import Parts
from program import TINY, ProgramTest, checkpoints, english, merged, metrics, shared_folder, train_run
from safetensors import safe_open

shared = None


def setUpModule():
    global shared
    shared = shared_folder()
    (shared / "text.txt").write_text(english(19880))
    for name in ("expire", "fixed"):
        train_run(shared / name, merged(TINY, {"data": {"path": "text.txt"}, "forgetting": {"method": f"{name}_span"}}))


class Info(ProgramTest):
    def test_json(self):
        for name in ("expire", "fixed"):
            info = self.succeed_json("info", shared / name)
            with safe_open(info["checkpoint"], "numpy") as file:
                weights = sum(file.get_tensor(n).size for n in file.keys() if n.startswith("weight."))
            self.assertEqual(info["parameters"], weights)
            self.assertEqual((info["method"], info["unit"], info["vocabulary"]), (f"{name}_span", "byte", 256))
            self.assertEqual(info["config"], (shared / name / "config.toml").read_text())
            valid = [line for line in metrics(shared / name) if line["split"] == "valid"]
            self.assertEqual(info["history"], [{k: line[k] for k in ("update", "loss", "bpb")} for line in valid])
            self.assertEqual(len(info["layers"]), 2)
            self.assertGreater(info["memory_bytes"], 0)

    def test_spare_rows_do_not_count(self):
        # All heads reach back 16 timesteps; training keeps up to 16 more, lest a span that grows should miss them.
        spans = {"max_span": 64, "ramp": 4, "trim_step": 16, "initial_fraction": 0.25, "loss": 0.0}
        change = {"forgetting": {"method": "adaptive_span"}, "adaptive_span": spans, "optimiser": {"rate": 0.0}}
        self.succeed("train", self.config(shared / "text.txt", change), "--out", self.folder / "run")
        valid = [line for line in metrics(self.folder / "run") if line["split"] == "valid"][-1]
        for now, then in zip(self.succeed_json("info", self.folder / "run")["layers"], valid["layers"], strict=True):
            self.assertLessEqual(now["memory_max"], then["memory_max"])
            self.assertGreater(now["memory_mean"], 0.9 * then["memory_mean"])

    def test_history(self):
        """Updates are told to the last digit; null, which older versions wrote for infinite perplexities, is left out."""
        parts = Parts(checkpoints(shared / "expire")[0])
        state = json.loads(parts.metadata["state"])
        state["history"] = [{"update": 3, "loss": 2.5, "ppl": None}, {"update": 1234567, "loss": 2.25}]
        parts.metadata["state"] = json.dumps(state)
        file = self.folder / "update-00000020.safetensors"
        parts.write(file)
        self.assertEqual(self.succeed_json("info", file)["history"], [{"update": 3, "loss": 2.5}, {"update": 1234567, "loss": 2.25}])
        self.assertRegex(self.succeed("info", file).stdout, r"update 1234567 +loss 2.25")

    def test_a_folder_whose_name_is_not_utf8(self):
        run = pathlib.Path(os.fsdecode(os.fsencode(self.folder) + b"/n\xff"))
        shutil.copytree(shared / "expire", run)
        self.assertEqual(self.succeed_json("info", run)["parameters"], self.succeed_json("info", shared / "expire")["parameters"])
        shutil.copy(shared / "text.txt", run)
        config = self.config(shared / "text.txt")
        arguments = ("train", config, "--data", run / "text.txt", "--out", self.folder / "out")
        self.refuse(*arguments, says="the configuration's path is not UTF-8")
        self.assertFalse((self.folder / "out").exists())

    def test_text_of_a_single_checkpoint(self):
        file = checkpoints(shared / "expire")[1]
        copy = self.folder / "alone.safetensors"  # a checkpoint needs nothing beside it
        shutil.copy(file, copy)
        printed = self.succeed("info", copy).stdout
        for words in (str(copy), "10 updates", "expire_span", "span_mean", "memory_max", "validation", "[optimiser]"):
            self.assertIn(words, printed)
        self.assertIn("[expire_span]", printed)
        for other in ("[fixed_span]", "[copy]", "[corridor]", "[actor_critic]", "[adaptive]"):
            self.assertNotIn(other, printed)


if __name__ == "__main__":
    unittest.main()
