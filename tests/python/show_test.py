"""lapse.show against `lapse inspect`: the same record, in the same page; and memory sizes for loggers."""

import json
import pathlib
import re
import sys
import tempfile
import unittest

import torch
import transformers as hf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import lapse
import lapse.hf
from lapse import page_view

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import program  # noqa: E402
from browser import BROWSER, show  # noqa: E402


def data_of(page):
    return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)[1])


def marked(text, size):
    """Cut into documents of so many characters, between lines of markers."""
    return "".join(f"<doc {i}>\n {text[i : i + size]}\n</doc>\n" for i in range(0, len(text), size))


METHOD = lambda name, **own: {"forgetting": {"method": name}, name: own}
RUNS = {
    "expire": {},
    "adaptive": METHOD("adaptive_span", max_span=20, ramp=4, trim_step=4, initial_fraction=0.3),
    "selective, windows": {
        "data": {"windows": True},
        "model": {"attend_self": True, "positions": "absolute"},
        "train": {"block": 24},
        **METHOD("selective_attention", max_span=24, budgets=[6, 9]),
    },
    "documents": {
        "data": {"documents": "lines"},
        "train": {"block": 40},
        **METHOD("fixed_span", max_span=12),
    },
    "documents by markers": {
        "data": {"documents": "<doc </doc>", "unit": "character"},
        "train": {"block": 30},
        **METHOD("selective_attention", max_span=30),
        "model": {"attend_self": True},
    },
    "sinks, characters": {"data": {"unit": "character"}, **METHOD("sink_window", max_span=30, sinks=2, window=5)},
}


@unittest.skipUnless(pathlib.Path(program.PROGRAM).exists(), f"no program {program.PROGRAM}: scripts/build.sh release")
class Show(program.ProgramTest):
    def test_it_is_what_inspect_writes(self):
        out = self.folder / "page.html"
        for i, (name, changes) in enumerate(RUNS.items()):
            with self.subTest(name):
                text, whole = program.english(150, seed=2) + "naïve – 日本\n", program.english(6000) + "naïve – 日本\n" * 20
                if "markers" in name:
                    text, whole = marked(text, 50), marked(whole, 200)
                data, training = self.write("short.txt", text), self.write("text.txt", whole)
                run = self.folder / f"run{i}"
                self.succeed("train", self.config(training, changes), "--out", run)
                self.succeed("inspect", run, "--data", data, "--split", "all", "--tokens", 500, "-o", out)
                theirs, ours = data_of(out.read_text()), data_of(lapse.show(run, text).html)
                for key in ("unit", "part", "bos", "count", "begins", "headings", "cells"):
                    self.assertEqual(ours[key], theirs[key], key)
                torch.testing.assert_close(
                    torch.tensor(ours["nats"]), torch.tensor(theirs["nats"]), rtol=1e-3, atol=1e-3
                )
                for mine, layer in zip(ours["layers"], theirs["layers"], strict=True):
                    for key in ("held", "there", "sizes", "max"):
                        self.assertEqual(mine[key], layer[key], key)
                    self.assertEqual(mine["told"].keys(), layer["told"].keys())
                    for told, values in layer["told"].items():
                        found, known = (torch.tensor([x or 0.0 for x in v]) for v in (mine["told"][told], values))
                        torch.testing.assert_close(found, known, rtol=2e-3, atol=2e-3)


    def test_it_says_how_a_loaded_model_is_read(self):
        self.succeed("train", self.config(self.write("text.txt", program.english(6000))), "--out", self.folder / "run")
        model = lapse.load(self.folder / "run", method="sinks", budget=8, sinks=2)
        facts = dict(data_of(lapse.show(model, "The end").html)["facts"])
        self.assertEqual([facts[name] for name in ("method", "budget", "sinks")], ["sink_window", "8", "2"])
        own = dict(data_of(lapse.show(lapse.load(self.folder / "run"), "The end").html)["facts"])
        self.assertEqual(own["method"], "expire_span")
        self.assertNotIn("budget", own)

    def test_a_model_in_training_is_read_without_dropout(self):
        text = self.write("text.txt", program.english(6000))
        self.succeed("train", self.config(text), "--set", "model.dropout=0.5", "--out", self.folder / "run")
        model = lapse.load(self.folder / "run").train()
        model.layers[0].eval()
        layers = [data_of(lapse.show(model, "The end of it").html)["layers"] for _ in range(2)]
        self.assertEqual(*layers)
        self.assertEqual([model.training, model.layers[0].training, model.layers[1].training], [True, False, True])


class Pages(unittest.TestCase):
    def model(self):
        torch.manual_seed(0)
        sizes = {"vocab_size": 99, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2}
        return hf.LlamaForCausalLM(hf.LlamaConfig(**sizes, num_attention_heads=2, num_key_value_heads=1)).eval()

    class Letters:
        encode = staticmethod(lambda text: [ord(c) - 32 for c in text])
        decode = staticmethod(lambda tokens: "".join(chr(t + 32) for t in tokens))

    def test_a_model_of_transformers(self):
        page = lapse.show(self.model(), "</script> what is held?", self.Letters, method="tova", budget=6)
        data = data_of(page.html)
        self.assertEqual("".join(cell[0] for cell in data["cells"][0]), "</script> what is held?")
        self.assertEqual(data["layers"][1]["max"], 6)
        for layer in data["layers"]:
            # each query beside the first few reads its own row and 5 others
            self.assertEqual(sum(layer["held"]) + data["count"], sum(layer["sizes"]))
        self.assertEqual(page._repr_html_().count("<iframe"), 1)
        with tempfile.TemporaryDirectory() as folder:
            page.save(pathlib.Path(folder, "page.html"))
            self.assertEqual(pathlib.Path(folder, "page.html").read_text(encoding="utf-8"), page.html)
        with self.assertRaisesRegex(ValueError, "needs tokenizer="):
            lapse.show(self.model(), "text")
        with self.assertRaisesRegex(ValueError, "text must be a str, got a .*Path"):
            lapse.show(self.model(), pathlib.Path("text.txt"), self.Letters)
        with self.assertRaisesRegex(ValueError, "two tokens or more"):
            lapse.show(self.model(), "", self.Letters, method="tova", budget=6)

    def test_scores_of_heads_are_added_up(self):
        data = data_of(lapse.show(self.model(), "what is held?", self.Letters, method="h2o", budget=4).html)
        for layer in data["layers"]:
            self.assertEqual(len(layer["told"]["score"]), data["count"])
            self.assertGreater(layer["told"]["score"][0], 2.0)  # both key heads' queries read the first letter, and it alone

    def test_a_model_that_forgets_is_read_as_it_does(self):
        model = lapse.hf.forget(self.model(), "expire_span", max_span=3, ramp=1.0)
        page = lapse.show(model, "what is held?", self.Letters)
        self.assertIn("expire_span", page.html)
        self.assertLessEqual(max(layer["max"] for layer in data_of(page.html)["layers"]), 5)

    def test_tokens_keep_their_spaces_and_characters(self):
        text = "Speak to the citizen 🙂 wörld, speak"
        byte_level = Tokenizer(models.BPE())
        byte_level.pre_tokenizer, byte_level.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        words = Tokenizer(models.BPE(unk_token="?"))
        words.pre_tokenizer, words.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
        for tokenizer, alphabet in ((byte_level, pre_tokenizers.ByteLevel.alphabet()), (words, list(set(text)))):
            trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
            tokenizer.train_from_iterator(["Speak to the citizens, speak to the world"] * 9, trainer)
            fast = hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer)
            tokens = fast.encode(text)
            pieces = page_view._pieces(fast, tokens)
            self.assertEqual(len(pieces), len(tokens))
            cells = page_view._cells(pieces, len(tokens))
            self.assertEqual("".join(cell for cell, _ in cells), text)
            self.assertEqual(sum(count for _, count in cells), len(tokens))
            self.assertTrue(any(cell.startswith(" ") for cell, _ in cells))

    def test_bytes_that_are_no_characters(self):
        cells = page_view._cells([b"a", b"\xc3", b"\xaf", b"\xff", b"\xe6", b"b"], 5)
        self.assertEqual(cells, [["a", 1], ["ï", 2], ["\\xFF", 1], ["\\xE6b", 1]])

    @unittest.skipUnless(BROWSER, "no browser")
    def test_it_opens(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "page.html")
            lapse.show(self.model(), "what is held?", self.Letters, method="h2o", budget=4).save(path)
            dom, messages = show(path)
            self.assertEqual(messages, [])
            self.assertEqual(len(re.findall(r'<polyline class="curve" points="\d', dom)), 2)  # one for each layer


class Log(unittest.TestCase):
    def test_sizes_as_scalars(self):
        model = Pages().model()
        cache = lapse.hf.Cache(model, "tova", [4, 8])
        with torch.no_grad():
            model(torch.randint(99, (2, 30)), past_key_values=cache)
        told = lapse.log.scalars(cache)
        expected = {"memory/layer0": 3.0, "memory/layer1": 7.0, "memory/mean": 5.0, "memory/max": 7.0}
        self.assertEqual({k: v for k, v in told.items() if k != "memory/bytes"}, expected)
        self.assertEqual(told["memory/bytes"], cache.nbytes())
        logged = []

        class Writer:
            def add_scalar(self, name, value, step):
                logged.append((name, value, step))

            def log(self, values, step):
                logged.append((values, step))

        lapse.log.to_tensorboard(Writer(), cache, 5)
        self.assertIn(("memory/layer1", 7.0, 5), logged)
        lapse.log.to_wandb(Writer(), [layer.memory for layer in cache.layers], 6, prefix="kept")
        self.assertEqual(logged[-1][0]["kept/mean"], 5.0)


if __name__ == "__main__":
    unittest.main()
