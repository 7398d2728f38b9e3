"""An encoder-decoder that fills in spans, through every verb."""

import re
import unittest

from program import ProgramTest, checkpoints, english, metrics
from safetensors.torch import load_file

MODEL = {
    "width": 16,
    "layers": 2,
    "encoder_layers": 1,
    "heads": 2,
    "feed_forward": 32,
    "norm": "pre",
    "norm_kind": "rms",
    "biases": False,
    "attend_self": True,
    "scaled_logits": False,
    "positions": "buckets",
    "initialisation": "normal",
    "output": "tied",
    "dropout": 0.1,
    "embedding_dropout": 0.1,
    "residual_dropout": 0.1,
    "output_dropout": 0.1,
}
SPANS = {
    "data": {"objective": "span_corruption", "sentinels": 12},
    "model": MODEL,
    "forgetting": {"method": "selective_attention"},
    "train": {"block": 40, "parts": 2, "batch": 4},
}


class SpanCorruption(ProgramTest):
    def setUp(self):
        super().setUp()
        self.text = self.write("text.txt", english(40000))
        self.toml = self.config(self.text, SPANS)

    def train(self, run, *sets, toml=None):
        run = self.folder / run
        words = [word for value in sets for word in ("--set", value)]
        self.succeed("train", toml or self.toml, "--out", run, "--quiet", *words)
        return run

    def test_a_resumed_run_is_the_same_to_the_bit(self):
        whole, parts = self.train("whole"), self.train("parts", "train.updates=10")
        self.succeed("train", self.toml, "--out", parts, "--quiet", "--resume")
        one, other = (load_file(checkpoints(run)[0]) for run in (whole, parts))
        self.assertEqual(one.keys(), other.keys())
        for name in one:
            self.assertTrue(one[name].equal(other[name]), name)

    def test_it_learns(self):
        run = self.train("run", "train.updates=300", "optimiser.rate=1e-2", "train.validate_every=300")
        losses = [line["nats_per_target"] for line in metrics(run) if "nats_per_target" in line]
        self.assertLess(losses[-1], 0.8 * losses[0])
        result = self.succeed_json("eval", run)
        self.assertAlmostEqual(result["nats_per_target"], result["loss"], places=6)
        self.assertEqual(len(result["layers"]), 2)
        # One batch size or another: the spans that are cut out are the same.
        again = self.succeed_json("eval", run, "--streams", 3)
        self.assertAlmostEqual(result["loss"], again["loss"], places=4)
        info = self.succeed_json("info", run)
        self.assertEqual((info["update"], info["vocabulary"]), (300, 2 + 256 + 12))

    def test_gaps_are_filled(self):
        run = self.train("run")
        prompt = "The <extra_id_0> and the <extra_id_1>."
        generate = ("generate", run, "--prompt", prompt, "--tokens", 30, "--seed", 3)
        texts = [self.succeed(*generate, errors="backslashreplace").stdout for _ in range(2)]  # any bytes may be drawn
        self.assertEqual(texts[0], texts[1])
        self.assertTrue(texts[0].startswith("The "))
        self.assertNotIn("<extra_id_0>", texts[0])
        self.refuse("generate", run, "--prompt", "no gap", says="<extra_id_0>")
        self.refuse("generate", run, "--prompt", prompt, "--remembered", says="--remembered")

    def test_the_decoder_may_be_read_with_another_method(self):
        run = self.train("run")
        plain = self.succeed_json("eval", run)["loss"]
        self.assertNotEqual(self.succeed_json("eval", run, "--method", "local", "--budget", 2)["loss"], plain)
        self.assertGreater(self.succeed_json("eval", run, "--precision", "bf16")["loss"], 0)

    def test_a_trial_counts_its_parameters(self):
        run = self.train("run", "train.updates=1")
        count = sum(t.numel() for name, t in load_file(checkpoints(run)[0]).items() if name.startswith("weight."))
        self.assertEqual(self.succeed_json("train", self.toml, "--dry-run", "--seconds", 0)["parameters"], count)

    def test_every_unit_of_text(self):
        for unit in ("character", "word"):
            config = self.config(self.text, SPANS, {"data": {"unit": unit}}, name=f"{unit}.toml")
            run = self.train(unit, "train.updates=2", toml=config)
            self.succeed("generate", run, "--prompt", "The <extra_id_0> the", "--tokens", 5)

    def test_long_targets_count_in_the_estimate(self):
        """What is cut out is what the decoder reads: with much noise far more than train.block."""
        sizes = ("--set", "train.block=64", "--set", "data.sentinels=99")
        noises = [("--set", f"data.noise_density={noise}") for noise in (0.15, 0.8)]
        dry = ("train", self.toml, "--dry-run", "--seconds", 0, *sizes)
        targets = [int(re.search(r"x 64 tokens of sources, (\d+) of targets", self.succeed(*dry, *noise).stdout)[1]) for noise in noises]
        self.assertLess(targets[0], 20)
        self.assertGreater(targets[1], 100)
        few, many = (self.succeed_json(*dry, *noise)["memory_most"] for noise in noises)
        self.assertGreater(many, few)

    def test_what_does_not_fit_is_refused(self):
        def refused(says, *sets):
            words = [word for value in sets for word in ("--set", value)]
            self.refuse("train", self.toml, "--out", self.folder / "no", *words, says=says)

        refused("needs an encoder", "model.encoder_layers=0")
        refused('model.positions = "buckets"', "model.positions=relative")
        refused("span_corruption", "data.objective=next_token")
        refused("data.windows", "data.windows=true")
        refused("data.sentinels = 1", "data.sentinels=1")
        refused("at least 3 tokens", "train.block=2")
        refused("is for texts", "data.task=copy", "data.path=")
        refused("shares the embedding", "model.input=adaptive")
        run = self.train("run", "train.updates=1")
        refused("data.sentinels is 50, but the run to go on from has 12", f"train.from={run}", "data.sentinels=50")
        self.refuse("eval", run, "--losses", self.folder / "losses", says="--losses")
        self.refuse("inspect", run, "--out", self.folder / "page.html", says="encoder")
        self.refuse("prune", run, "--step", 2, "--out", self.folder / "pruned.safetensors", says="encoder")


if __name__ == "__main__":
    unittest.main()
