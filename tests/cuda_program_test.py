"""On a GPU: the program's verbs with --device cuda do what they do on the CPU. LAPSE_DEVICE names another device, to see
without a GPU that this test itself works."""

import math
import os
import pathlib
import sys
import unittest

import torch

DEVICE = os.environ.get("LAPSE_DEVICE", "cuda")
if DEVICE == "cuda" and not torch.cuda.is_available():
    sys.exit(77)  # skipped

from program import PROGRAM, ProgramTest, english, lapse, metrics, toml, merged, TINY  # noqa: E402
from same_run import ADAPTIVE, METHODS, newest_checkpoint  # noqa: E402

if DEVICE == "cuda" and not (pathlib.Path(PROGRAM).parent / "lapse_kernels.bin").exists():
    print("there are no compiled kernels; make them: scripts/build.sh release cuda_kernels")
    sys.exit(77)

KINDS = {method: merged({"forgetting": {"method": method}}, more) for method, more in METHODS.items()} | {
    "loss at creation": {"expire_span": {"loss_at": "creation"}},
    "adaptive ends": ADAPTIVE,
    "positions of times": {"data": {"windows": True}, "model": {"positions": "absolute"}, "forgetting": {"method": "fixed_span"}},
}
if DEVICE == "cpu":  # to see that the test works, some are enough
    KINDS = {kind: KINDS[kind] for kind in ("expire_span", "selective_attention", "adaptive ends", "positions of times")}
NEAR = 2e-3  # of a loss after 20 updates whose roundings differ
ROUNDED = 0.05  # the same in bfloat16


class OnTheDevice(ProgramTest):
    def trained(self, name, changes, device, updates, *options):
        path = self.write(f"{name}.toml", toml(merged(TINY, {"data": {"path": "text.txt"}}, changes)))
        self.succeed("train", path, "--out", self.folder / name, "--quiet", "--resume", "--set", f"train.device={device}",
                     "--set", f"train.updates={updates}", *options, cwd=self.folder)  # fmt: skip
        return self.folder / name

    def dry_run(self, value):
        return lapse("train", "here.toml", "--dry-run", "--set", value, cwd=self.folder).stderr

    def losses(self, run):
        return [line["loss"] for line in metrics(run)]

    def assert_alike(self, run, other, near):
        got, expected = self.losses(run), self.losses(other)
        self.assertEqual(len(got), len(expected))
        for x, y in zip(got, expected):
            self.assertLess(abs(x - y), near)

    def assert_same(self, run, other):
        """To the bit, as a run that goes on on the same kind of device."""
        self.assertEqual(self.losses(run), self.losses(other))
        self.assertEqual(newest_checkpoint(run)[1], newest_checkpoint(other)[1])

    def setUp(self):
        super().setUp()
        self.write("text.txt", english(20_000))

    def test_every_kind_trains_resumes_and_is_read(self):
        for kind, changes in KINDS.items():
            with self.subTest(kind):
                here = self.trained(f"{kind}-here", changes, "cpu", 20)
                there = self.trained(f"{kind}-there", changes, DEVICE, 20)
                self.assert_alike(there, here, NEAR)
                self.trained(f"{kind}-again", changes, DEVICE, 10)
                self.assert_same(self.trained(f"{kind}-again", changes, DEVICE, 20), there)
                moved = self.trained(f"{kind}-moved", changes, "cpu", 10)
                self.trained(f"{kind}-moved", changes, DEVICE, 20)
                self.assert_alike(moved, here, NEAR)
                self.trained(f"{kind}-moved", changes, "cpu", 25)
                self.check_reading(there, tokens=4 if kind == "positions of times" else 60)

    def check_reading(self, run, tokens):
        """Beyond a block, where the model has positions for it."""
        read = [self.succeed_json("eval", run, "--device", device) for device in ("cpu", DEVICE)]
        self.assertLess(abs(read[0]["loss"] - read[1]["loss"]), 1e-4)
        self.assertLess(abs(read[0]["memory_mean"] - read[1]["memory_mean"]), 0.5)
        for options in ((), ("--precision", "bf16")):
            text = self.succeed("generate", run, "--device", DEVICE, "--prompt", "The ", "--tokens", tokens,
                                "--temperature", "0", *options).stdout  # fmt: skip
            self.assertGreater(len(text), tokens)
        self.succeed("inspect", run, "--device", DEVICE, "--tokens", tokens + 4, "--out", self.folder / "page.html")

    def test_graphs_change_nothing(self):
        """Of the text that follows, over several of them; positions and none, and rows that go."""
        if DEVICE != "cpu" and not (pathlib.Path(PROGRAM).parent / "liblapse_graphs.so").exists():
            self.skipTest("liblapse_graphs.so was not built, and without it there are no graphs")
        self.addCleanup(os.environ.pop, "LAPSE_GRAPHS", None)
        for method in ("expire_span", "selective_attention", "fixed_span"):
            run = self.trained(method, merged({"forgetting": {"method": method}}, METHODS[method]), DEVICE, 20)
            texts = []
            for graphs in ("1", "0"):
                os.environ["LAPSE_GRAPHS"] = graphs
                texts.append(self.succeed("generate", run, "--device", DEVICE, "--prompt", "The ", "--tokens", 700,
                                          "--temperature", "0").stdout)  # fmt: skip
            self.assertEqual(*texts, method)

    def test_bfloat16_trains(self):
        here = self.trained("here", {}, "cpu", 20)
        if DEVICE == "cpu" and "multiplies bfloat16" in self.dry_run("train.precision=bf16"):
            self.skipTest("this processor does not multiply bfloat16")
        there = self.trained("there", {}, DEVICE, 20, "--set", "train.precision=bf16")
        self.assert_alike(there, here, ROUNDED)
        self.assertTrue(all(math.isfinite(x) for x in self.losses(there)))

    def test_budgets_are_found(self):
        model = {"data": {"windows": True}, "model": {"attend_self": True}, "forgetting": {"method": "selective_attention"},
                 "selective_attention": {"max_span": 32}, "train": {"block": 32, "batch": 4}}  # fmt: skip
        run = self.trained("run", model, DEVICE, 20)
        here, there = (self.succeed_json("prune", run, "--device", device, "--tokens", "512", "--out", self.folder / f"{device}.safetensors")
                       for device in ("cpu", DEVICE))  # fmt: skip
        self.assertLess(abs(here["measured_on"]["loss"] - there["measured_on"]["loss"]), NEAR)

    def test_agents_act_and_learn(self):
        world = {"data": {"task": "corridor"}, "corridor": {"shortest": 3, "longest": 6}, "train": {"batch": 4, "block": 16}}
        path = self.write("corridor.toml", toml({k: v for k, v in merged(TINY, world).items() if k != "data"} | {"data": world["data"]}))
        self.succeed("train", path, "--out", self.folder / "agent", "--quiet", "--set", f"train.device={DEVICE}", cwd=self.folder)
        result = self.succeed_json("eval", self.folder / "agent", "--device", DEVICE, "--episodes", "20")
        self.assertEqual(result["episodes"], 20)


if __name__ == "__main__":
    unittest.main()
