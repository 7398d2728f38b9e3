"""`lapse prune` as a process: budgets found, written, measured; interrupted and resumed; what it refuses."""

import json
import random
import re
import signal
import time
import unittest

from program import TINY, ProgramTest, checkpoints, english, lapse, merged, shared_folder, start, toml, train_run
from safetensors import safe_open
from safetensors.torch import save_file

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
    shared = shared_folder()
    (shared / "text.txt").write_text(english(20000))
    standard = merged(SELECTIVE, {"forgetting": {"method": "fixed_span"}, "fixed_span": {"max_span": 64}})
    streams = merged(TINY, {"data": {"path": "text.txt"}})
    for name, config in (("selective", SELECTIVE), ("standard", standard), ("streams", streams)):
        train_run(shared / name, config)


class Prune(ProgramTest):
    def prune(self, *arguments, **options):
        return json.loads(
            self.succeed("prune", "selective", "--tokens", 2000, "--json", *arguments, cwd=shared, **options).stdout
        )

    def test_its_own_loss_beside_one_to_reach(self):
        result = self.prune("--threshold", 9, "--step", 16, "--out", self.folder / "small.safetensors")
        own = result["at_own_loss"]
        self.assertLessEqual(own["chosen_on"], result["chosen_on"]["loss_full"] * (1 + 1e-5))
        self.assertGreaterEqual(own["total"], result["total"])

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
        # The curve is beside the checkpoint, and can be drawn.
        self.assertEqual(json.loads(out.with_suffix(".json").read_text()), result)
        self.succeed("plot", out.with_suffix(".json"), "-o", self.folder / "curve.svg")
        axis = (self.folder / "curve.svg").read_text()
        self.assertIn(">60<", axis)
        self.assertTrue("dotted: the loss to reach" in axis and ">at the loss to reach<" in axis)
        self.assertNotIn("at the model's own loss", axis)  # which is the loss to reach
        self.assertNotIn("mathdefault", axis)
        # The written checkpoint holds no more than its budgets, and has the loss that was measured.
        read = json.loads(self.succeed("eval", out, "--json", cwd=shared).stdout)
        self.assertEqual([layer["memory_max"] for layer in read["layers"]], budgets)
        full = json.loads(self.succeed("eval", "selective", "--json", cwd=shared).stdout)
        self.assertEqual([layer["memory_max"] for layer in full["layers"]], [64, 64])

    def test_a_search_that_begins_below_what_layers_hold(self):
        out = self.folder / "small.safetensors"
        self.prune("--margin", 0.001, "--out", out)
        earlier = out.read_bytes()
        result = self.prune("--context", 24, "--threshold", 0.1, "--out", out)
        self.assertIsNone(result["checkpoint"])  # no budgets reach the loss, and what an earlier search wrote is kept with its rounds
        self.assertEqual((self.folder / "small.old.safetensors").read_bytes(), earlier)
        self.assertFalse(out.exists())
        self.succeed("plot", out.with_suffix(".json"), "-o", self.folder / "far.svg")
        picture = (self.folder / "far.svg").read_text()
        self.assertIn("loss to reach: 0.1)", picture)  # told, since a line so far away would make the curve flat
        self.assertNotIn("at the loss to reach", picture)  # nor a mark
        self.assertEqual((result["budgets"], result["full"], result["saved"]), ([24, 24], 2 * 64, 2 * 64 / 48))  # saved of whole windows
        printed = self.succeed("prune", "selective", "--tokens", 2000, "--context", 24, "--threshold", 0.1, "--out", out, cwd=shared).stdout
        self.assertIn("the loss to reach, 0.1, is not reached with 24 rows a layer, where the search begins (", printed)

    def test_documents_that_fill_no_window_begin_at_a_whole_one(self):
        lines = "\n".join(english(40, seed=i).replace("\n", " ") for i in range(400))
        text = self.write("lines.txt", lines + "\n")
        train_run(self.folder / "lines", merged(SELECTIVE, {"data": {"path": str(text), "documents": "lines", "windows": False}}))
        done = self.succeed("prune", "lines", "--tokens", 500, "--margin", 9, "--json", cwd=self.folder)
        result = json.loads(done.stdout)
        self.assertEqual((result["full"], result["rounds"][-1]["budgets"]), (128, [8, 8]))
        self.assertEqual(result["rounds"][0]["loss"], result["chosen_on"]["loss_full"])
        printed = self.succeed("prune", "lines", "--tokens", 500, "--margin", 9, "--threshold", 9, cwd=self.folder).stdout
        self.assertIn("no layer can be lowered by 8 rows more; a smaller --step may save more\n", printed)

        # Nine documents, read as three blocks of three: not three blocks of four, which train.batch would be.
        few = self.succeed("prune", "lines", "--tokens", 350, "--json", "--out", self.folder / "few.safetensors", cwd=self.folder)
        self.assertTrue(350 <= json.loads(few.stdout)["chosen_on"]["tokens"] < 400, few.stdout)

    # The search reads them in an order of its own, which rounds sums otherwise: its rounds are compared with a loss of its own.
    def test_of_documents_the_first_round_has_the_models_own_loss(self):
        lines = "\n".join(english(7 + i * i % 18, seed=i).replace("\n", " ") for i in range(400))
        text = self.write("lines.txt", lines + "\n")
        train_run(self.folder / "lines", merged(SELECTIVE, {"data": {"path": str(text), "documents": "lines", "windows": False}}))
        for tokens in (300, 700, 1200):
            result = json.loads(self.succeed("prune", "lines", "--tokens", tokens, "--json", cwd=self.folder).stdout)
            self.assertEqual(result["rounds"][0]["loss"], result["threshold"])
            self.assertEqual(result["threshold"], result["chosen_on"]["loss_full"])

    def test_a_search_with_other_settings_loses_nothing(self):
        search = ("prune", "selective", "--tokens", 500, "--threshold", 9, "--out", self.folder / "p.safetensors")
        self.succeed(*search, cwd=shared)
        before = (self.folder / "p.json").read_text()
        self.assertEqual(self.succeed(*search, cwd=shared).stderr.count("note"), 0)
        done = self.succeed(*search, "--step", 16, cwd=shared)
        named = ("prune", "selective", "--tokens", 500, "--threshold", 9, "--out", self.folder / "named.safetensors", "--data")
        self.succeed(*named, "text.txt", cwd=shared)
        self.assertEqual(self.succeed(*named, "./text.txt", cwd=shared).stderr, "")  # the same text
        self.assertIn(f'{self.folder / "p.json"} is of a search with another "step"; it is kept as {self.folder / "p.old.json"}', done.stderr)
        kept = json.loads((self.folder / "p.old.json").read_text())
        self.assertEqual(kept | {"checkpoint": None}, json.loads(before) | {"checkpoint": None})
        # The checkpoint of that search is kept too, where its result says.
        self.assertEqual(kept["checkpoint"], str(self.folder / "p.old.safetensors"))
        for result in (kept, json.loads((self.folder / "p.json").read_text())):
            told = json.loads(self.succeed("info", result["checkpoint"], "--json").stdout)["config"]
            self.assertIn(f"budgets = {result['budgets']}", told)
        self.assertEqual(result["settings"]["step"], 16)
        before = (self.folder / "p.old.json").read_text()
        done = self.succeed(*search, "--step", 24, cwd=shared)
        self.assertIn(str(self.folder / "p.old2.json"), done.stderr)
        self.assertEqual((self.folder / "p.old.json").read_text(), before)

    def test_a_checkpoint_is_that_of_the_last_search(self):
        """Whoever reads the file after a search that found nothing would take another's budgets for its result."""
        out, old = self.folder / "p.safetensors", self.folder / "p.old.safetensors"
        search = ("prune", "selective", "--step", 32, "--out", out, "--tokens")
        self.succeed(*search, 500, "--threshold", 9, cwd=shared)
        first = out.read_bytes()
        done = self.succeed(*search, 500, "--threshold", 0.1, cwd=shared)
        self.assertIn(f"lapse: note: {out} is of a search for another loss; it is kept as {old}\n", done.stderr)
        self.assertEqual((out.exists(), old.read_bytes()), (False, first))
        self.assertNotIn("note", self.succeed(*search, 500, "--threshold", 0.1, cwd=shared).stderr)  # there is none to keep
        # Rounds and checkpoint that do not belong together, as versions before left them.
        out.write_bytes(first)
        done = self.succeed(*search, 400, "--threshold", 9, cwd=shared)
        self.assertIn(f"{out} is of a search that p.json does not tell of; it is kept as {self.folder / 'p.old3.safetensors'}\n", done.stderr)
        self.assertEqual((self.folder / "p.old3.safetensors").read_bytes(), first)
        self.assertEqual(json.loads((self.folder / "p.old2.json").read_text())["settings"]["tokens"], 500)
        # One search may write its own anew, also after an interruption: rounds that are saved in between name the checkpoint.
        rounds = json.loads(out.with_suffix(".json").read_text())
        self.assertNotIn("note", self.succeed(*search, 400, "--threshold", 8, cwd=shared).stderr)
        out.with_suffix(".json").write_text(json.dumps({**{key: rounds[key] for key in ("settings", "checkpoint")}, "rounds": rounds["rounds"][:1]}))
        self.assertNotIn("note", self.succeed(*search, 400, "--threshold", 9, cwd=shared).stderr)

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
        def refused(words, *arguments, status=1):
            done = lapse("prune", *arguments, cwd=shared)
            self.assertEqual(done.returncode, status)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(words, done.stderr)

        refused("has no budgets to find", "streams")
        train_run(self.folder / "copy", merged(TINY, {"data": {"task": "copy"}, "copy": {"longest": 4, "alphabet": 3}, "train": {"block": 12, "updates": 1}}))
        refused("`lapse prune` needs a run that reads a text, and this one has the task copy", self.folder / "copy", "--split", "test")
        text = self.write("own.txt", "mine")
        refused(f"--out: a checkpoint's name ends in .safetensors, not as {text}", "selective", "--out", text)
        self.assertEqual(text.read_text(), "mine")
        refused("give one", "selective", "--standard", "standard", "--threshold", 2)
        refused("one reads its text in windows and the other in streams", "selective", "--standard", "streams")
        self.succeed("train", "selective.toml", "--set", "data.unit=character", "--set", "train.updates=1", "--out", "characters", cwd=shared)
        refused("--standard characters: it has another vocabulary", "selective", "--standard", "characters")
        refused("nothing to find", "selective", "--step", 60)
        refused("--context 1000: no layer holds more than 64 rows here", "selective", "--context", 1000)
        narrow = ("--set", "train.block=32", "--set", "selective_attention.max_span=32", "--out", "narrow")
        self.succeed("train", "selective.toml", *narrow, cwd=shared)
        refused("--standard narrow: it reads windows of at most 32 tokens, and selective of 64", "selective", "--standard", "narrow")
        refused("no such run", "nowhere")
        refused("--tokens", "selective", "--token", 3, status=2)


def repeating(pieces, seed):
    """A text in which each byte is that of 8 places before, mostly: whoever forgets the last 8 cannot know it."""
    draw = random.Random(seed)
    return "".join("".join(draw.choices("abcdefgh", k=8)) * 8 for _ in range(pieces))


class AnotherRun(ProgramTest):
    """The loss to reach is another run's. Every number that `lapse prune` tells is measured again by `lapse eval`."""

    def setUp(self):
        super().setUp()
        self.write("text.txt", repeating(600, 1))
        self.write("unseen.txt", repeating(80, 2))  # 5,120 bytes: its parts are 64, 8 and 8 whole windows
        longer = {"model": {"width": 32}, "optimiser": {"rate": 1e-2, "warmup": 20}, "train": {"batch": 8}}
        copying = merged(SELECTIVE, longer, {"train": {"updates": 250, "seed": 2}})
        copying["selective_attention"]["memory_loss"] = 0
        # After 60 updates a run knows which bytes there are (ln 8 = 2.08 nats), but not yet how to copy.
        standard = {"forgetting": {"method": "fixed_span"}, "fixed_span": {"max_span": 64}}
        for name, config in (("copying", copying), ("early", merged(copying, standard, {"train": {"updates": 60}}))):
            self.write(f"{name}.toml", toml(config))
            self.succeed("train", f"{name}.toml", "--out", name, cwd=self.folder)

    def loss(self, run, split):
        done = self.succeed("eval", run, "--data", "unseen.txt", "--split", split, "--json", cwd=self.folder)
        return json.loads(done.stdout)["loss"]

    def loss_with(self, budgets):
        """Of the run under budgets that no search has chosen."""
        with safe_open(checkpoints(self.folder / "copying")[0], "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}
            metadata = {key: value for key, value in file.metadata().items() if key != "lapse.checksum"}
        metadata["config"], found = re.subn(r"(?m)^budgets = .*$", f"budgets = {budgets}", metadata["config"])
        self.assertEqual(found, 1)
        save_file(tensors, self.folder / "other.safetensors", metadata)
        return self.loss("other.safetensors", "train")

    def test_its_loss_is_reached_and_no_step_further_reaches_it(self):
        search = ("--standard", "early", "--margin", 0, "--context", 16, "--step", 2)
        part = ("--data", "unseen.txt", "--split", "train", "--measure", "test", "--tokens", 4096)
        done = self.succeed("prune", "copying", *search, *part, "--out", "p.safetensors", "--json", cwd=self.folder)
        result = json.loads(done.stdout)
        goal, budgets, losses = result["threshold"], result["budgets"], [r["loss"] for r in result["rounds"]]
        rounding = 1e-6  # float32 losses near 2, added up in another order
        self.assertAlmostEqual(goal, self.loss("early", "train"), delta=rounding)
        self.assertEqual(result["chosen_on"]["loss_standard"], goal)
        self.assertLess(losses[0], goal - 0.02, "the run is to be better than the other, or there is nothing to search")
        self.assertGreater(losses[-1], goal, "the search ends where the goal is missed")
        self.assertTrue(4 < sum(budgets) < 32, budgets)

        pruned = self.loss("p.safetensors", "train")
        self.assertLessEqual(pruned, goal + rounding)
        self.assertAlmostEqual(result["chosen_on"]["loss"], pruned, delta=rounding)
        self.assertAlmostEqual(self.loss_with(budgets), pruned, delta=rounding)
        for lower in ([budgets[0] - 2, budgets[1]], [budgets[0], budgets[1] - 2]):
            if min(lower) >= 2:
                self.assertGreater(self.loss_with(lower), goal - rounding, lower)

        measured = result["measured_on"]
        self.assertAlmostEqual(measured["loss"], self.loss("p.safetensors", "test"), delta=rounding)
        self.assertAlmostEqual(measured["loss_full"], self.loss("copying", "test"), delta=rounding)
        self.assertAlmostEqual(measured["loss_standard"], self.loss("early", "test"), delta=rounding)
        self.assertNotIn("note:", done.stderr)
        self.assertGreater(losses[0], result["chosen_on"]["loss_full"] + rounding)  # --context leaves out rows that it needs
        self.assertNotIn("at_own_loss", result)
        self.succeed("plot", "p.json", "-o", "p.svg", cwd=self.folder)
        for words in ("at the loss to reach", "on other text"):
            self.assertIn(words, (self.folder / "p.svg").read_text())
        same = self.succeed("prune", "copying", *search, *part[:-4], "--measure", "train", "--tokens", 4096, "--out", "same.safetensors", cwd=self.folder)
        self.assertIn("note: --measure train has the text on which budgets are chosen", same.stderr)


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
        self.assertEqual(len(written("--prompt", whole, "--remembered")["remembered"]), 65)  # the last is not read
        done = generate("--prompt", whole + "x")
        self.assertEqual(done.returncode, 1)
        self.assertIn("the prompt has 65 tokens", done.stderr)


if __name__ == "__main__":
    unittest.main()
