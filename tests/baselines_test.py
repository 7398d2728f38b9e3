"""`lapse eval --method`: models read by the baselines that need no training, as a process.

The losses and memory sizes that the command prints are held to tests/dense_reader.py, which reads the same checkpoint
with explicit masks. The methods themselves, layer by layer and in float64, are tested in lapse/model/baselines_test.cpp;
what only this test sees is the way from options through adoption of another method's positions to the printed numbers.
"""

import unittest

import dense_reader as dense
import torch
from program import TINY, ProgramTest, checkpoints, english, merged, shared_folder, train_run

BUDGET = 9
SINKS = 4  # sink_window's default
EVERY = 2

# name: (options of the command, the rule they stand for)
BASELINES = {
    "local": ((), lambda: dense.local(BUDGET)),
    "local_global": (("--every", EVERY), lambda: dense.local_global(BUDGET, EVERY)),
    "strided": ((), lambda: dense.strided_within(BUDGET)),
    "sink_window": ((), lambda: dense.sink_window(SINKS, BUDGET - SINKS)),
    "h2o": ((), lambda: dense.h2o(BUDGET)),
    "tova": ((), lambda: dense.tova(BUDGET)),
}

# The Selective Attention paper's base model, on windows.
PAPER = {
    "data": {"windows": True},
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
    "train": {"block": 64, "batch": 4},
}

# Runs of every method, post-norm and pre-norm, with positions by age and by time.
RUNS = {
    "fixed_span": {"model": {"activation": "gelu"}, "fixed_span": {"max_span": 24}},
    "expire_span": {"model": {"norm": "pre"}, "expire_span": {"max_span": 30, "ramp": 4.5}},
    "adaptive_span": {"adaptive_span": {"max_span": 24}},
    "compressive": {"compressive": {"max_span": 20, "size": 12, "rate": 3}},
    "selective_attention": {"model": {"attend_self": True}, "selective_attention": {"max_span": 28}},
    "paper": merged(PAPER, {"fixed_span": {"max_span": 64}}),
}

# Runs trained with a baseline: their own settings, without --budget, and the rule of these.
TRAINED = {
    "local": ({"max_span": 20, "window": 7}, lambda: dense.local(7)),
    "local_global": ({"max_span": 20, "window": 6, "every": 2}, lambda: dense.local_global(6, 2)),
    "strided": ({"max_span": 20, "window": 4, "stride": 5}, lambda: dense.strided(4, 5)),
    "sink_window": ({"max_span": 20, "sinks": 2, "window": 5}, lambda: dense.sink_window(2, 5)),
    "h2o": ({"max_span": 20, "budget": 8}, lambda: dense.h2o(8)),
    "tova": ({"max_span": 20, "budget": 5}, lambda: dense.tova(5)),
}

# A mean of some hundred float32 losses near 8, each good to some 1e-6.
TOLERANCE = 1e-6
# Scores of eviction are sums of exp(logit) of float32 logits up to 30, which are good to 1e-5: nearer scores might change
# places.
NEAREST = 1e-4

BOS = 256
text = english(300)
shared = None


def train(name, *changes):
    """A run that every machine has alike: one update, then weights drawn anew. NAME.safetensors beside it."""
    once = {"data": {"path": "text.txt"}, "train": {"updates": 1}}
    train_run(shared / name, merged(TINY, *changes, once))
    dense.redraw(checkpoints(shared / name)[0], shared / f"{name}.safetensors", seed=2)


def setUpModule():
    global shared
    torch.set_num_threads(1)
    shared = shared_folder()
    (shared / "text.txt").write_text(english(2000))
    (shared / "read.txt").write_text(text)
    for name, changes in RUNS.items():
        train(name, {"forgetting": {"method": name if name != "paper" else "fixed_span"}}, changes)


def streams(run):
    """What `lapse eval` reads of the text, as pairs of tokens and targets: whole streams, or windows after BOS."""
    ids = torch.tensor(list(text.encode()))
    train = run.config["train"]
    if run.config["data"]["windows"]:
        return [(torch.cat([torch.tensor([BOS]), piece[:-1]]), piece) for piece in ids.split(train["block"])]
    length = len(ids) // train["batch"]
    return [(piece[:-1], piece[1:]) for piece in ids[: length * train["batch"]].split(length)]


class Baselines(ProgramTest):
    def eval(self, run, *arguments):
        file = shared / f"{run}.safetensors"
        return self.succeed_json("eval", file, "--data", shared / "read.txt", "--split", "all", *arguments)

    def compare(self, read, name, rule):
        """What the command printed, and what the run reads by the rule."""
        run = dense.Run(shared / f"{name}.safetensors")
        read_by_rule = [run.losses(*stream, rule) for stream in streams(run)]
        losses = torch.cat([losses for losses, _ in read_by_rule])
        self.assertEqual(read["tokens"], len(losses))
        self.assertAlmostEqual(read["loss"], losses.mean().item(), delta=TOLERANCE)
        for l, layer in enumerate(read["layers"]):
            # [T, T], or [H, T, T] where heads hold rows of their own: a row is held while some head holds it.
            sizes = torch.cat([masks[l].view(-1, *masks[l].shape[-2:]).any(0).sum(1) for _, masks in read_by_rule])
            self.assertAlmostEqual(layer["memory_mean"], sizes.double().mean().item(), delta=1e-9)
            self.assertEqual(layer["memory_max"], sizes.max().item())
        if isinstance(rule, dense.Evicting):
            self.assertGreater(rule.nearest, NEAREST, "rounding could decide which row goes: choose another seed")
        return losses.mean().item()

    def test_each_reads_every_run_within_its_budget(self):
        for run in RUNS:
            whole = self.compare(self.eval(run, "--method", "local", "--budget", 64), run, dense.full)
            found = {whole}
            for method, (options, rule) in BASELINES.items():
                with self.subTest(run=run, method=method):
                    read = self.eval(run, "--method", method, "--budget", BUDGET, *options)
                    loss = self.compare(read, run, rule())
                    # Else the comparison could not tell one method from another.
                    self.assertGreater(min(abs(loss - other) for other in found), 20 * TOLERANCE)
                    found.add(loss)
                    heads = TINY["model"]["heads"] if method == "h2o" else 1  # the budget is of each
                    for layer in read["layers"][: 1 if method == "local_global" else None]:
                        self.assertLessEqual(layer["memory_max"], BUDGET * heads)

    def test_each_can_be_configured(self):
        for method, (settings, rule) in TRAINED.items():
            with self.subTest(method=method):
                train(f"own_{method}", {"forgetting": {"method": method}, method: settings})
                self.compare(self.eval(f"own_{method}"), f"own_{method}", rule())

    def test_a_window_as_long_as_the_fixed_span_is_the_fixed_span(self):
        whole = self.eval("fixed_span")
        self.compare(whole, "fixed_span", dense.full)
        window = self.eval("fixed_span", "--method", "local", "--budget", 24)
        self.assertAlmostEqual(window["loss"], whole["loss"], delta=1e-6)  # 1e-8 of the renormalisation, and rounding
        self.assertEqual(self.eval("fixed_span", "--method", "fixed_span")["loss"], whole["loss"])

    def test_windows_can_be_trained(self):
        for method in ("local", "local_global", "strided"):
            changes = {"forgetting": {"method": method}, "local_global": {"every": 2}}
            config = self.config(shared / "text.txt", changes, name=f"{method}.toml")
            self.succeed("train", config, "--out", self.folder / method)
            self.succeed("generate", self.folder / method, "--prompt", "The", "--tokens", 5, "--json", "--method", "tova", "--budget", 3)

    def test_says_which_methods_an_option_is_of(self):
        printed = " ".join(self.succeed("eval", "--help").stdout.split())
        self.assertIn("needs no training (one of local, local_global, strided, sink_window, h2o, tova)", printed)
        for holder in ("local, strided, sink_window, tova: rows that every layer", "h2o: rows that every head", "local_global: rows that every local layer"):
            self.assertIn(holder, printed)

    def test_what_is_refused(self):
        run = [shared / "fixed_span", "--data", shared / "text.txt"]
        self.refuse("eval", *run, "--method", "h20", says=("there is no 'h20'", "did you mean 'h2o'"), status=2)
        self.refuse("eval", *run, "--method", "expire_span", says="must be trained")
        self.refuse("eval", *run, "--budget", 3, says="--budget is no option of")
        self.refuse("eval", *run, "--method", "h2o", "--budget", -1, says="--budget")
        self.refuse("eval", *run, "--method", "sink_window", "--budget", 4, says="leave no row for the window")
        self.refuse("eval", *run, "--method", "local_global", says=("every 4 layers is global", "has 2", "--every"))
        self.refuse("eval", *run, "--method", "sink_window", "--budget", 9, "--sinks", 9, says="leave no row")
        self.refuse("eval", *run, "--method", "h2o", "--max-span", 9, says="--max-span is no option of --method h2o")


if __name__ == "__main__":
    unittest.main()
