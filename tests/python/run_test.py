"""lapse.load against the program: the loss of every token, and the memory that predicted it, of tiny runs of every kind."""

import json
import pathlib
import pickle
import sys
import unittest
import warnings
from unittest import mock

import torch
from torch.nn import functional as F

import lapse
from lapse.checkpoint import checkpoints_of
from lapse.vocabulary import Vocabulary

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import program  # noqa: E402

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "fixtures"

PRE = {
    "norm": "pre",
    "norm_kind": "rms",
    "normed_heads": True,
    "activation": "swiglu",
    "feed_forward": 0,
    "biases": False,
}
WINDOWS = {
    "data": {"windows": True},
    "model": {**PRE, "attend_self": True, "positions": "absolute"},
    "train": {"block": 24},
}
METHOD = lambda name, **own: {"forgetting": {"method": name}, name: own}
# what is changed of the tiny run
RUNS = {
    "expire, post-norm": {},
    "expire, pre-norm, from zeros": {
        "model": PRE,
        "expire_span": {"initial_memory": "zeros", "divide": "all", "divisor": 2.0},
    },
    "fixed, gelu": {"model": {"activation": "gelu"}, **METHOD("fixed_span", max_span=12)},
    "fixed, from zeros, tied, unscaled": {
        **METHOD("fixed_span", max_span=12, initial_memory="zeros"),
        "model": {"output": "tied", "scaled_logits": False},
    },
    "expire, buckets": {"model": {"positions": "buckets", "bucket_distance": 20}},
    "selective, windows, buckets": {
        **WINDOWS,
        "model": {**PRE, "positions": "buckets"},
        **METHOD("selective_attention", max_span=24),
    },
    "adaptive": METHOD("adaptive_span", max_span=20, ramp=4, trim_step=4, initial_fraction=0.3),
    "selective, windows": {**WINDOWS, **METHOD("selective_attention", max_span=24, memory_loss=0.1)},
    "selective, budgets": {**WINDOWS, **METHOD("selective_attention", max_span=24, budgets=[5, 9])},
    "selective, streams of words": {
        "data": {"unit": "word"},
        **METHOD("selective_attention", max_span=30, shift=False, mask_self=True, mask_first=True),
    },
    "sinks": {"data": {"unit": "character"}, **METHOD("sink_window", max_span=30, sinks=2, window=5)},
}
# readings of a run trained with a fixed span of 30
READINGS = {
    "local": {"budget": 7},
    "local_global": {"budget": 7, "every": 2},
    "strided": {"budget": 8},
    "sink_window": {"budget": 9, "sinks": 3},
    "h2o": {"budget": 8},
    "tova": {"budget": 8},
}


@unittest.skipUnless(pathlib.Path(program.PROGRAM).exists(), f"no program {program.PROGRAM}: scripts/build.sh release")
class Load(program.ProgramTest):
    def setUp(self):
        super().setUp()
        self.text = self.write("text.txt", program.english(6000))
        self.short = self.write("short.txt", program.english(260, seed=2))

    def train(self, changes, name="run"):
        config = self.config(self.text, changes)
        self.succeed("train", config, "--out", self.folder / name)
        return self.folder / name

    def told(self, run, *arguments):
        """(nats, memory sizes) of each token of the short text as the program reads it."""
        file = self.folder / "losses.jsonl"
        self.succeed(
            "eval",
            run,
            "--data",
            self.short,
            "--split",
            "all",
            "--streams",
            1,
            "--losses",
            file,
            "--threads",
            1,
            *arguments,
        )
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        return torch.tensor([x["nats"] for x in lines]), [x["memory"] for x in lines]

    def check(self, run, *arguments, memory=True, **named):
        """The same by the module: token by token, with memory sizes, and in blocks."""
        nats, held = self.told(run, *arguments)
        model = lapse.load(run, **named)
        self.compare(model, [1], nats, held if memory else None)
        self.compare(model, [5, 1, 9, 40], nats, None)

    def compare(self, model, sizes, nats, held):
        tokens = model.vocabulary.encode(self.short.read_bytes())
        windows = model.config["data"]["windows"]
        block = model.config["train"]["block"]
        parts = (
            [[model.vocabulary.bos, *tokens[i : i + block]] for i in range(0, len(tokens), block)]
            if windows
            else [tokens]
        )
        own = (
            1
            if model.layers[0].attention.min_age == 0
            or isinstance(model.layers[0].attention, lapse.nn.SelectiveAttention)
            else 0
        )
        found, rows = [], []
        for part in parts:
            state, at = None, 0
            while at < len(part) - 1:
                for n in sizes:
                    piece = torch.tensor([part[at : min(at + n, len(part) - 1)]])
                    if piece.numel() == 0:
                        break
                    with torch.no_grad():
                        begun = lambda: [layer.attention.begin(1).rows() for layer in model.layers]
                        before = [int(sum(r)) for r in (begun() if state is None else state.rows())]
                        logits, state = model(piece, state)
                    rows.append([r + own for r in before])
                    target = torch.tensor(part[at + 1 : at + 1 + piece.shape[1]])
                    found.append(F.cross_entropy(logits[0], target, reduction="none"))
                    at += piece.shape[1]
        # float32 through two implementations of some 10 layers of arithmetic; nats are printed with 6 digits
        torch.testing.assert_close(torch.cat(found), nats, rtol=1e-4, atol=2e-4)
        if held is not None:
            self.assertEqual(rows, held)

    def test_runs_of_every_kind(self):
        for i, (name, changes) in enumerate(RUNS.items()):
            with self.subTest(name):
                run = self.train(changes, f"run{i}")
                counted = not ("budgets" in name or "zeros" in name)
                self.check(run, memory=counted)

    def test_subwords(self):
        """Also what SentencePiece would change: its sign for a space, zeros, line ends, bytes that are no UTF-8."""
        pieces = self.folder / "pieces.model"
        self.succeed("tokenizer", "train", "--data", self.text, "--vocabulary", 320, "--out", pieces, "--quiet")
        text = self.short.read_bytes()[:150] + "a\u2581b \u2581\n\0é".encode() + b"\xff\xc3 z\n <0x41> <s>"
        self.short.write_bytes(text)
        run = self.train({"data": {"unit": "subword", "tokenizer": str(pieces)}})
        self.check(run)
        vocabulary = lapse.load(run).vocabulary
        self.assertEqual(b"".join(map(vocabulary.bytes_of, vocabulary.encode(text))), text)

    def test_a_tasks_tokens(self):
        """As the command reads a prompt: what `lapse task show` prints of a sequence's begin and of line ends is passed over."""
        vocabulary = Vocabulary(json.dumps({"unit": "token", "tokens": ["a", "b", "|", "<eos>"], "bos": True}))
        self.assertEqual(vocabulary.encode("<bos> a b | <eos>\n a"), [0, 1, 2, 3, 0])
        with self.assertRaisesRegex(ValueError, "no token '<bos>'"):
            vocabulary.encode("a <bos>")

    def test_readings_by_other_methods(self):
        """The program's own rules of eviction, on the same scores."""
        run = self.train(METHOD("fixed_span", max_span=30))
        for method, options in READINGS.items():
            with self.subTest(method):
                flags = [x for name, value in options.items() for x in (f"--{name}", value)]
                self.check(run, "--method", method, *flags, method=method, **options)

    def test_other_methods_start_from_the_runs_own_zeros(self):
        run = self.train(METHOD("fixed_span", max_span=12, initial_memory="zeros"))
        for method in ("local", "sink_window", "h2o", "tova"):
            with self.subTest(method):
                self.check(run, "--method", method, "--budget", 7, method=method, budget=7)

    def test_it_goes_on_learning(self):
        run = self.train({})
        model = lapse.load(run).train()
        tokens = torch.tensor(list(self.text.read_bytes()[:1601])).view(1, -1)
        optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
        memory, losses = None, []
        for at in range(0, 1600, 16):
            logits, memory = model(tokens[:, at : at + 16], memory)
            loss = F.cross_entropy(logits[0], tokens[0, at + 1 : at + 17])
            optimiser.zero_grad()
            (loss + model.cost).backward()
            optimiser.step()
            losses.append(loss.item())
        self.assertTrue(all(p.grad is not None for p in model.parameters()))
        self.assertLess(sum(losses[-20:]), sum(losses[:20]) * 0.9)

    def test_a_call_that_fails_between_layers_ends_the_memory(self):
        model = lapse.load(self.train({}))
        tokens = torch.tensor([list(self.text.read_bytes()[:24])]).view(1, -1)
        for layer in (0, 1):
            for parts in ("attention", "feed_forward"):
                with self.subTest(layer=layer, parts=parts), torch.no_grad():
                    _, memory = model(tokens[:, :8])
                    broken = getattr(model.layers[layer], parts)
                    with mock.patch.object(broken, "forward", side_effect=KeyboardInterrupt):
                        with self.assertRaises(KeyboardInterrupt):
                            model(tokens[:, 8:16], memory)
                    if (layer, parts) == (0, "attention"):  # nothing was read
                        _, other = model(tokens[:, :8])
                        again, expected = model(tokens[:, 8:16], memory)[0], model(tokens[:, 8:16], other)[0]
                        self.assertTrue(torch.equal(again, expected))
                    else:
                        with self.assertRaisesRegex(RuntimeError, "failed between the layers"):
                            model(tokens[:, 8:16], memory)

    def test_spans_that_cost_once(self):
        """With expire_span.loss_at = "creation" the cost is loss / T times the spans of a block's rows, the mean over streams."""
        model = lapse.load(self.train(METHOD("expire_span", loss_at="creation", loss=1e-3), "creation"))
        seen = []
        for attention in model.attentions():
            spans = attention.spans
            attention.spans = lambda x, spans=spans: seen.append(spans(x)) or seen[-1]
        tokens, state = torch.tensor([list(self.text.read_bytes()[:24])]).view(2, 12), None
        for at in (0, 7):
            seen.clear()
            _, state = model(tokens[:, at : at + 7], state)
            steps = tokens[:, at : at + 7].shape[1]
            wanted = sum(span[:, -steps:].sum() / 2 * 1e-3 / steps for span in seen)
            self.assertAlmostEqual(model.cost.item(), wanted.item(), delta=1e-6 * abs(wanted.item()))
        model.cost.backward()
        self.assertTrue(all(attention.span_weight.grad.abs().sum() > 0 for attention in model.attentions()))

    def test_costs_are_the_runs_own(self):
        """Of its first update: all blocks of a text of one letter are the same, and with a rate of 0 the weights stay."""
        self.text.write_text("a" * 6000)
        first = {"train": {"updates": 1, "log_every": 1}, "optimiser": {"rate": 0}}
        for loss_at in ("ramp", "creation"):
            with self.subTest(loss_at):
                run = self.train({**METHOD("expire_span", loss_at=loss_at, loss=0.1), **first}, loss_at)
                told = json.loads((run / "metrics.jsonl").read_text().splitlines()[0])
                model = lapse.load(run)
                model(torch.full((2, 8), ord("a")))
                # float32, sums of some 100 terms
                self.assertAlmostEqual(model.cost.item(), told["cost"], delta=1e-5 * abs(told["cost"]))

    def test_all_layers_drop_alike(self):
        """One u a block, as in the run itself (expire_span.random_drop)."""
        model = lapse.load(self.train(METHOD("expire_span", random_drop=True), "drop")).train()
        drawn = []
        for _ in range(3):
            model(torch.zeros(1, 4, dtype=torch.long))
            drawn.append({attention.uniform for attention in model.attentions()})
        self.assertTrue(all(len(each) == 1 and 0 <= min(each) < 1 for each in drawn) and len(set.union(*drawn)) == 3)

    def test_short_names_are_the_long_ones(self):
        run = self.train(METHOD("fixed_span", max_span=30))
        with self.assertRaisesRegex(ValueError, "cannot be read with selective_attention, which must be trained"):
            lapse.load(run, method="selective", budget=4)
        with self.assertRaisesRegex(ValueError, "budget must be a positive whole number, got -4"):
            lapse.load(run, method="tova", budget=-4)
        model = lapse.load(run, method="window", budget=8)
        copied = pickle.loads(pickle.dumps(model))
        tokens = torch.tensor([list(self.text.read_bytes()[:40])])
        with torch.no_grad():
            self.assertTrue(torch.equal(copied(tokens)[0], model(tokens)[0]))
        own = self.train(METHOD("selective_attention", shift=False, mask_self=True), "own")
        with torch.no_grad():
            a, b = lapse.load(own), lapse.load(own, method="selective", budget=1000)
            self.assertTrue(torch.equal(a(tokens)[0], b(tokens)[0]))

    def test_what_it_does_not_read(self):
        run = self.train(METHOD("compressive", max_span=12))
        with self.assertRaisesRegex(ValueError, "lapse.load does not read compressive; the command lapse does"):
            lapse.load(run)
        run = self.train({}, "expire")
        with self.assertRaisesRegex(ValueError, "cannot be read with fixed_span, which must be trained"):
            lapse.load(run, method="fixed_span")
        with self.assertRaisesRegex(ValueError, "evicts row by row; read within torch.no_grad"):
            lapse.load(run, method="h2o", budget=9)(torch.tensor([[1, 2]]))
        run = self.train(METHOD("expire_span", loss_at="creation"), "creation")
        with self.assertRaisesRegex(ValueError, "no forgetting method 'nothing'"):
            lapse.load(run, "nothing")
        with self.assertRaisesRegex(ValueError, r"positive whole number, got \[8, 16\]"):
            lapse.load(run, "tova", budget=[8, 16])
        with self.assertRaisesRegex(FileNotFoundError, "no checkpoint in its folder"):
            lapse.load(self.folder)
        with self.assertRaisesRegex(FileNotFoundError, "nowhere: no such run or checkpoint"):
            lapse.load(self.folder / "nowhere")
        whole = checkpoints_of(run)[0].read_bytes()
        for content in (b"[train]\n", whole[: len(whole) // 2]):
            (self.folder / "broken").write_bytes(content)
            with self.assertRaisesRegex(ValueError, "broken: not a checkpoint of lapse, or not all of one"):
                lapse.load(self.folder / "broken")
        model = lapse.load(run)
        for tokens, got in ((torch.tensor([1, 2]), r"\[2\]"), (torch.zeros(1, 0, dtype=torch.long), r"\[1, 0\]")):
            with self.assertRaisesRegex(ValueError, r"tokens must be \[B, T\], T at least 1, got " + got):
                model(tokens)
        for token in (-7, model.vocabulary.size):
            with self.assertRaisesRegex(ValueError, f"tokens must be 0 ... {model.vocabulary.size - 1}, .* got .*{token}"):
                model(torch.tensor([[1, token]]))
            with self.assertRaisesRegex(ValueError, f"no token {token}: this vocabulary has {model.vocabulary.size}"):
                model.vocabulary.decode([1, token])

    def test_runs_of_earlier_versions(self):
        """They load as the command reads them, or a ValueError says what this module does not have."""
        read = set()
        for path in sorted(FIXTURES.glob("*/*.safetensors")):
            with self.subTest(path.relative_to(FIXTURES)):
                try:
                    model = lapse.load(path)
                except ValueError as error:
                    self.assertRegex(str(error), "does not read")
                    continue
                read.add(path.stem)
                tokens = torch.tensor([model.vocabulary.encode(self.short.read_bytes())[:30]])
                with torch.no_grad():
                    self.assertEqual(model(tokens)[0].shape, (1, 30, model.vocabulary.size))
                if model.config["data"].get("documents", "none") == "none":
                    self.check(path)
        self.assertEqual(read, {"expire_span", "fixed_span", "local_global", "selective_attention", "strided"})


def altered(content, at):
    """With one bit flipped."""
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@unittest.skipUnless(pathlib.Path(program.PROGRAM).exists(), f"no program {program.PROGRAM}: scripts/build.sh release")
class Damage(program.ProgramTest):
    """lapse.load of files that are not what the program wrote."""

    def setUp(self):
        super().setUp()
        self.trained = self.folder / "run"
        self.succeed("train", self.config(self.write("text.txt", program.english(2000))), "--out", self.trained)
        self.newest, self.older = checkpoints_of(self.trained)
        self.whole = self.newest.read_bytes()

    def weight(self, model):
        return model.embedding.weight.detach().clone()

    def test_no_bit_changes_unnoticed(self):
        header = int.from_bytes(self.whole[:8], "little")
        checksum = self.whole.index(b"lapse.checksum")
        places = {  # the last tensor, the first, the checksum and its name, the configuration; the header's ends and size
            "its checksum does not agree": [-9, 8 + header + 64, checksum + 18, self.whole.index(b"[train]") + 2],
            "metadata has the unknown key 'lapse.checksul'": [checksum + 13],
            "not a checkpoint of lapse, or not all of one": [0, 8, 7 + header],
        }
        file = self.folder / "one.safetensors"
        for words, each in places.items():
            for at in each:
                file.write_bytes(altered(self.whole, at % len(self.whole)))
                line = rf"^.*one\.safetensors: {words}.*; put a good copy there, or load another checkpoint$"
                with self.subTest(at=at), self.assertRaisesRegex(ValueError, line):
                    lapse.load(file)
        file.write_bytes(self.whole)
        lapse.load(file)

    def test_files_without_a_checksum_are_read(self):
        from safetensors import safe_open
        from safetensors.torch import save_file

        with safe_open(str(self.newest), "pt") as file:
            told = {key: value for key, value in file.metadata().items() if key != "lapse.checksum"}
            save_file({name: file.get_tensor(name) for name in file.keys()}, self.folder / "foreign", told)
        self.succeed("info", self.folder / "foreign")
        torch.testing.assert_close(self.weight(lapse.load(self.folder / "foreign")), self.weight(lapse.load(self.trained)))

    def test_a_run_falls_back_to_the_checkpoint_before(self):
        before = self.weight(lapse.load(self.older))
        self.assertFalse(torch.equal(before, self.weight(lapse.load(self.newest))))
        for content in (altered(self.whole, len(self.whole) - 9), self.whole[: len(self.whole) // 2], b""):
            self.newest.write_bytes(content)
            with self.assertWarnsRegex(UserWarning, f"{self.newest.name}: .*; trying the checkpoint before it"):
                self.assertTrue(torch.equal(before, self.weight(lapse.load(self.trained))))
        self.newest.unlink()
        self.newest.mkdir()
        with self.assertWarnsRegex(UserWarning, "not a file that is there; trying the checkpoint before it"):
            self.assertTrue(torch.equal(before, self.weight(lapse.load(self.trained))))
        self.older.write_bytes(b"[train]")
        none = "no usable checkpoint among the 2 of its folder"
        with self.assertWarns(UserWarning), self.assertRaisesRegex(ValueError, none):
            lapse.load(self.trained)

    def test_a_run_that_goes_on_meanwhile(self):
        """It removes what was found, once it has written a newer one."""
        self.newest.write_bytes(b"[train]")
        read = lapse.checkpoint._read

        def later(path):
            if path == self.newest:
                self.older.rename(self.newest.parent / "update-00000030.safetensors")
            return read(path)

        with mock.patch("lapse.checkpoint._read", later), warnings.catch_warnings():
            warnings.simplefilter("error")
            lapse.load(self.trained)

    def test_files_of_other_names_are_the_users(self):
        folder = self.newest.parent
        for name in ("update-backup", "update-99999999-copy", "update-", "update-99999999999999999999", "update-9", "update-200000000x", "other"):
            (folder / f"{name}.safetensors").write_bytes(b"the user's")
        for file, update in ((self.newest, 100000020), (self.older, 99999999)):  # as text, the second comes last
            file.rename(folder / f"update-{update}.safetensors")
        self.assertEqual([path.name[7:-12] for path in checkpoints_of(self.trained)], ["100000020", "99999999"])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            lapse.load(self.trained)


if __name__ == "__main__":
    unittest.main()
