"""`lapse prune` as a process: budgets found, written, measured; interrupted and resumed; what it refuses."""

import json
import pathlib
import signal
import tempfile
import time
import unittest

from program import TINY, ProgramTest, english, lapse, merged, start, toml

# The paper's base model on windows of 64, just large enough to learn what to mask.
SELECTIVE = merged(
    TINY,
    {
        "data": {"path": "text.txt", "windows": True, "split": [0.8, 0.1, 0.1]},
        "model": {
            "norm": "pre",
            "norm_kind": "rms",
            "activation": "swiglu",
            "feed_forward": 0,
            "biases": False,
            "normed_heads": True,
            "attend_self": True,
            "positions": "absolute",
        },
        "forgetting": {"method": "selective_attention"},
        "selective_attention": {"memory_loss": 0.1, "max_span": 64},
        "train": {"block": 64, "batch": 4, "updates": 20},
    },
)

shared = None


def setUpModule():
    global shared
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    shared = pathlib.Path(folder.name)
    (shared / "text.txt").write_text(english(20000))
    standard = merged(SELECTIVE, {"forgetting": {"method": "fixed_span"}, "fixed_span": {"max_span": 64}})
    streams = merged(TINY, {"data": {"path": "text.txt"}})
    for name, config in (("selective", SELECTIVE), ("standard", standard), ("streams", streams)):
        (shared / f"{name}.toml").write_text(toml(config))
        done = lapse("train", f"{name}.toml", "--out", name, cwd=shared)
        assert done.returncode == 0, done.stderr


class Prune(ProgramTest):
    def prune(self, *arguments, **options):
        return json.loads(
            self.succeed("prune", "selective", "--tokens", 2000, "--json", *arguments, cwd=shared, **options).stdout
        )

    def test_it_finds_writes_and_measures_budgets(self):
        out = self.folder / "small.safetensors"
        result = self.prune("--margin", 0.001, "--out", out)
        budgets = result["budgets"]
        self.assertEqual(len(budgets), 2)
        self.assertTrue(all(b % 8 == 0 and 8 <= b <= 64 for b in budgets))
        self.assertEqual(result["total"], sum(budgets))
        self.assertEqual(result["full"], 128)
        self.assertAlmostEqual(result["saved"], 128 / sum(budgets))
        rounds = result["rounds"]
        self.assertEqual([r["total"] for r in rounds], [128 - 8 * i for i in range(len(rounds))])
        chosen = [r for r in rounds if r["loss"] <= result["threshold"]][-1]
        self.assertEqual(chosen["budgets"], budgets)
        self.assertEqual(result["threshold"], result["chosen_on"]["loss_full"])
        self.assertEqual(result["chosen_on"]["loss"], chosen["loss"])
        # The written checkpoint holds no more than its budgets, and has the loss that was measured.
        read = json.loads(self.succeed("eval", out, "--json", cwd=shared).stdout)
        self.assertEqual([layer["memory_max"] for layer in read["layers"]], budgets)
        full = json.loads(self.succeed("eval", "selective", "--json", cwd=shared).stdout)
        self.assertEqual([layer["memory_max"] for layer in full["layers"]], [64, 64])
        self.assertAlmostEqual(result["measured_on"]["loss"], read["loss"], delta=0.05)  # eval reads the last part too
        self.assertAlmostEqual(result["measured_on"]["loss_full"], full["loss"], delta=0.05)

    def test_it_reaches_the_loss_of_another_run(self):
        result = self.prune("--standard", "standard", "--margin", 0)
        self.assertEqual(result["chosen_on"]["loss_standard"], result["threshold"])
        self.assertIn("loss_standard", result["measured_on"])

    def test_an_interrupted_search_goes_on(self):
        arguments = ["prune", "selective", "--tokens", "3000", "--threshold", "9", "--step", "1", "--json"]
        saved = shared / "selective" / "prune.json"
        saved.unlink(missing_ok=True)
        process = start(*arguments, cwd=shared)
        deadline = time.monotonic() + 60
        while not saved.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        error = process.communicate()[1]
        self.assertEqual(process.returncode, 1)
        self.assertIn("goes on from the last whole round", error)
        before = json.loads(saved.read_text())["rounds"]
        result = json.loads(self.succeed(*arguments, cwd=shared).stdout)
        self.assertEqual(result["rounds"][: len(before)], before)
        self.assertEqual(result["budgets"], [1, 1])

    def test_what_it_refuses(self):
        def refused(words, *arguments):
            done = lapse("prune", *arguments, cwd=shared)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(words, done.stderr)

        refused("has no budgets to find", "streams")
        refused("give one", "selective", "--standard", "standard", "--threshold", 2)
        refused("another vocabulary", "selective", "--standard", "streams")
        refused("nothing to find", "selective", "--step", 60)
        refused("no such run", "nowhere")
        refused("--tokens", "selective", "--token", 3)


class Streams(ProgramTest):
    def test_the_search_starts_from_full_memories(self):
        method = {"forgetting": {"method": "selective_attention"}, "selective_attention": {"max_span": 64}}
        train = {"train": {"block": 16, "batch": 4, "updates": 5}}
        config = self.config(shared / "text.txt", method, train)
        self.succeed("train", config, "--out", self.folder / "run")
        # Four streams of 140 tokens in all would hold 35 rows each.
        result = self.succeed_json("prune", self.folder / "run", "--tokens", 140, "--step", 16)
        self.assertEqual(result["settings"]["context"], 64)


class Windows(ProgramTest):
    def test_absolute_positions_need_windows(self):
        config = self.config(shared / "text.txt", SELECTIVE, {"data": {"windows": False}})
        done = lapse("train", config, "--out", self.folder / "run")
        self.assertEqual(done.returncode, 1)
        self.assertIn("needs data.windows = true", done.stderr)

    def test_generation_ends_with_the_window(self):
        def generate(*arguments):
            return lapse("generate", "selective", *arguments, cwd=shared)

        def written(*arguments):
            return json.loads(self.succeed("generate", "selective", *arguments, "--json", cwd=shared).stdout)

        # BOS and "The" leave room for 60 of the window's 64 tokens; the 61st follows them and need not be read.
        made = written("--prompt", "The", "--tokens", 61)
        self.assertEqual(len(made["tokens"]), 61)
        self.assertTrue(all(token < 256 for token in made["tokens"]))
        self.assertEqual(made["prompt_tokens"], 4)
        self.assertEqual(written("--prompt", "The")["tokens"], made["tokens"])  # as many as there is room for
        for tokens in (62, 0):
            done = generate("--prompt", "The", "--tokens", tokens)
            self.assertEqual(done.returncode, 1)
            self.assertIn("windows of 64 tokens", done.stderr)
            self.assertIn("at most 61", done.stderr)
        whole = "x" * 63
        self.assertEqual(len(written("--prompt", whole)["tokens"]), 1)
        self.assertEqual(len(written("--prompt", whole, "--remembered")["remembered"]), 64)  # of the tokens read
        done = generate("--prompt", whole + "x")
        self.assertEqual(done.returncode, 1)
        self.assertIn("the prompt has 65 tokens", done.stderr)


if __name__ == "__main__":
    unittest.main()
