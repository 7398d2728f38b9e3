"""A run with adaptive ends through every verb; what the verbs say is measured from the checkpoint's tensors again."""

import json
import unittest

import torch
from program import TINY, ProgramTest, checkpoints, english, lapse, merged, shared_folder, train_run
from safetensors.torch import load_file

# Of an even 60 kinds of words or so, cut into 8, 16 and the rest.
ADAPTIVE = merged(
    TINY,
    {
        "data": {"path": "text.txt", "unit": "word", "split": [0.8, 0.1, 0.1]},
        "model": {"input": "adaptive", "output": "adaptive", "embedding_dropout": 0.1, "output_dropout": 0.1},
        "adaptive": {"cutoffs": [8, 24]},
    },
)
# The same with budgets to find, in windows.
SELECTIVE = merged(
    ADAPTIVE,
    {
        "data": {"windows": True},
        "model": {"norm": "pre", "attend_self": True, "positions": "absolute"},
        "forgetting": {"method": "selective_attention"},
        "selective_attention": {"memory_loss": 0.1, "max_span": 32},
        "train": {"block": 32},
    },
)
RUNS = {"tied": ADAPTIVE, "untied": merged(ADAPTIVE, {"adaptive": {"tied": False}}), "selective": SELECTIVE}

shared = None


def setUpModule():
    global shared
    shared = shared_folder()
    (shared / "text.txt").write_text(english(60000))
    for name, config in RUNS.items():
        train_run(shared / name, config)


def weights(run):
    tensors = load_file(checkpoints(shared / run)[0])
    return {name[len("weight.") :]: tensor for name, tensor in tensors.items() if name.startswith("weight.")}


class AdaptiveEnds(ProgramTest):
    def ask(self, *arguments):
        return json.loads(self.succeed(*arguments, "--json", cwd=shared).stdout)

    def test_the_checkpoint_has_each_band_once(self):
        tied, untied = weights("tied"), weights("untied")
        ours = {name for name in tied if name.startswith(("embedding", "output"))}
        input_only = {"embedding.0.weight", "embedding.1.weight", "embedding.1.projection", "embedding.2.weight",
                      "embedding.2.projection"}
        self.assertEqual(ours, input_only | {"output.clusters"})
        more = {name.replace("embedding", "output") for name in input_only}
        self.assertEqual({name for name in untied if name.startswith(("embedding", "output"))}, ours | more)
        self.assertEqual(tied["embedding.1.projection"].shape, (16, 4))
        self.assertEqual(tied["embedding.2.weight"].shape[1], 1)

    def test_a_trial_counts_its_parameters(self):
        for run in RUNS:
            count = sum(tensor.numel() for tensor in weights(run).values())
            self.assertEqual(self.ask("train", f"{run}.toml", "--dry-run")["parameters"], count)
            self.assertIn(f"{count} parameters", self.succeed("info", run, cwd=shared).stdout.replace(",", ""))

    def test_eval_gives_perplexity_per_word(self):
        for run in RUNS:
            result = self.ask("eval", run)
            self.assertAlmostEqual(result["ppl"], float(torch.tensor(result["loss"]).double().exp()), places=3)

    def test_generate_is_reproducible(self):
        for run in RUNS:
            first, again = (
                self.succeed("generate", run, "--prompt", "The", "--tokens", 20, "--seed", 3, cwd=shared).stdout
                for _ in range(2)
            )
            self.assertEqual(first, again)
            self.assertGreater(len(first.split()), 10)  # 20 tokens, some of which are line ends

    def test_inspect_and_prune(self):
        page = self.folder / "page.html"
        for run in RUNS:
            self.succeed("inspect", run, "--tokens", 60, "--out", page, cwd=shared)
            self.assertIn("<html", page.read_text())
        out = self.folder / "small.safetensors"
        self.ask("prune", "selective", "--tokens", 500, "--margin", 0.1, "--out", out)
        self.assertGreater(self.ask("eval", out)["ppl"], 1)

    def test_what_does_not_fit_is_refused(self):
        def refused(words, *sets):
            arguments = [word for field in sets for word in ("--set", field)]
            run = self.folder / "run"
            done = lapse("train", "tied.toml", "--out", run, *arguments, cwd=shared)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
            self.assertIn(words, done.stderr)
            self.assertFalse(run.exists())

        refused("adaptive.cutoffs = [24, 8] must be", "adaptive.cutoffs=[24, 8]")
        refused("smaller than the vocabulary", "adaptive.cutoffs=[8, 100000]")
        refused("adaptive.factor = 3", "adaptive.factor=3")
        refused("model.output", "model.output=adaptiv")
        for unit in ("byte", "character"):  # numbered by value, not by frequency
            refused('adaptive.cutoffs is for data.unit = "word"', f"data.unit={unit}", "adaptive.cutoffs=[8, 16]")
        refused('those of data.task = "instruction" are not', "data.task=instruction", "data.path=", "data.unit=byte", "adaptive.cutoffs=[8, 16]")


if __name__ == "__main__":
    unittest.main()
