"""Every verb of the program as a process, on a tiny text and model: what must work. Bad input: cli_error_test.py."""

import gzip
import json
import math
import os
import pty
import signal
import time
import tomllib
import unittest

import numpy
from program import TINY, ProgramTest, checkpoints, english, merged, metrics, shared_folder, start, train_run
from safetensors import safe_open
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

# The validation part has 994 bytes: two streams of 496 = 62 blocks of 8 predictions, so that nothing is left out.
TEXT = english(19880)
SPANS = {"expire_span": {"initial_fraction": 0.5}}  # 16 timesteps: more than a block is remembered

shared = None  # the folder of runs that many tests read


def setUpModule():
    global shared
    shared = shared_folder()
    (shared / "text.txt").write_text(TEXT)
    whole = {"train": {"validation_blocks": 0}}
    for name, change in (("expire", {}), ("fixed", {"forgetting": {"method": "fixed_span"}})):
        train_run(shared / name, merged(TINY, SPANS, whole, {"data": {"path": "text.txt"}}, change))


def losses(run, split="train"):
    return [line["loss"] for line in metrics(run) if line["split"] == split]


class Train(ProgramTest):
    def train(self, *changes, out="run", arguments=(), **options):
        config = self.config(shared / "text.txt", *changes, name=f"{out}.toml")
        done = self.succeed("train", config, "--out", self.folder / out, *arguments, **options)
        return self.folder / out, done

    def test_a_run_leaves_its_files(self):
        for run in (shared / "expire", shared / "fixed"):
            self.assertEqual(
                {path.name for path in run.iterdir()}, set("checkpoints config.toml metrics.jsonl tensorboard".split())
            )
            names = [path.name for path in checkpoints(run)]
            self.assertEqual(names, ["update-00000020.safetensors", "update-00000010.safetensors"])
            self.assertLess(losses(run)[-1], losses(run)[0])

    def test_metrics(self):
        lines = metrics(shared / "expire")
        order = [(line["update"], line["split"]) for line in lines]
        train, valid = "train", "valid"
        self.assertEqual(order, [(5, train), (10, train), (10, valid), (15, train), (20, train), (20, valid)])
        times = "ms_per_update tokens_per_second resident_memory peak_memory".split()
        fields = "update split loss bpb cost rate gradient_norm layers".split()
        for line in lines:
            self.assertTrue(math.isclose(line["bpb"], line["loss"] / math.log(2)))
            self.assertEqual(len(line["layers"]), 2)
            if line["split"] == train:
                self.assertEqual(list(line), fields + times)
                self.assertEqual(line["rate"], 3e-3)
                self.assertLess(line["cost"], 0)  # Eq. 7 is never positive
                self.assertEqual(
                    set(line["layers"][0]), set("memory_mean memory_max deleted span_mean span_max".split())
                )
            else:
                self.assertEqual(list(line), "update split loss bpb layers tokens whole tokens_per_second".split())
                self.assertEqual(set(line["layers"][0]), set("memory_mean memory_max span_mean span_max".split()))
        fixed = metrics(shared / "fixed")[-1]["layers"]
        self.assertEqual([layer["memory_max"] for layer in fixed], [12, 12])

    def test_tensorboard_shows_the_same_numbers(self):
        events = EventAccumulator(str(shared / "expire" / "tensorboard"))
        events.Reload()
        scalars = {tag: {e.step: e.value for e in events.Scalars(tag)} for tag in events.Tags()["scalars"]}
        compared = 0

        def compare(tag, update, value):
            nonlocal compared
            if isinstance(value, dict):
                for name, inner in value.items():
                    compare(f"{tag}/{name}", update, inner)
            elif isinstance(value, list):
                for i, inner in enumerate(value):
                    compare(f"{tag}/{i}", update, inner)
            elif not isinstance(value, bool):
                self.assertEqual(scalars[tag][update], numpy.float32(value), tag)
                compared += 1

        for line in metrics(shared / "expire"):
            compare(line["split"], line["update"], {k: v for k, v in line.items() if k not in ("update", "split")})
        self.assertEqual(compared, sum(len(steps) for steps in scalars.values()))

    def test_checkpoints_open_in_python(self):
        with safe_open(checkpoints(shared / "expire")[0], "numpy") as file:
            metadata = file.metadata()
            weights = {name: file.get_tensor(name) for name in file.keys()}
        config = (shared / "expire" / "config.toml").read_text()
        self.assertEqual(metadata["config"], config)
        resolved = tomllib.loads(config)
        self.assertEqual(resolved["expire_span"]["initial_fraction"], 0.5)
        self.assertEqual(resolved["optimiser"]["beta2"], 0.999)  # a default
        self.assertEqual(json.loads(metadata["state"])["update"], 20)
        self.assertEqual(weights["weight.embedding"].shape, (256, 16))
        self.assertEqual(weights["optimiser.exp_avg.layers.1.ff1.weight"].shape, (32, 16))
        self.assertEqual(weights["optimiser.steps"], [20])
        hidden, offsets = weights["memory.0.1.hidden"], weights["memory.0.1.offsets"]
        self.assertEqual(hidden.shape, (offsets[-1], 16))  # packed: no row but those that are remembered
        self.assertTrue(all(numpy.isfinite(w).all() for w in weights.values()))

    def test_help_lists_every_field(self):
        listed, section = {}, None
        for line in self.succeed("train", "--help", "all").stdout.splitlines():
            if line.startswith("["):
                section = listed.setdefault(line[1 : line.index("]")], [])
            elif section is not None and line.split()[1:2] == ["="]:
                section.append(line.split()[0])
        resolved = tomllib.loads((shared / "expire" / "config.toml").read_text())
        self.assertEqual(listed, {section: list(fields) for section, fields in resolved.items()})

    def test_set_is_stronger_than_the_file(self):
        sets = [
            "train.updates=4",
            "model.norm=pre",
            "optimiser.rate = 1e-4",
            "data.split=[0.8, 0.1, 0.1]",
            "train.log_every=1",
        ]
        run, _ = self.train(arguments=[a for s in sets for a in ("--set", s)])
        resolved = tomllib.loads((run / "config.toml").read_text())
        self.assertEqual((resolved["train"]["updates"], resolved["model"]["norm"]), (4, "pre"))
        self.assertEqual(resolved["data"]["split"], [0.8, 0.1, 0.1])
        rates = [line["rate"] for line in metrics(run) if line["split"] == "train"]
        numpy.testing.assert_allclose(rates, [1e-4 * n / 5 for n in (1, 2, 3, 4)])  # warm-up over 5

    def test_characters_in_three_files(self):
        text = "Größe, naïve café – " * 400
        self.write("train.gz", gzip.compress(text.encode()))
        self.write("valid.txt", text[:500])
        self.write("test.txt.gz", gzip.compress(text[:400].encode()))
        data = {"path": "", "train": "train.gz", "valid": "valid.txt", "test": "test.txt.gz", "unit": "character"}
        changes = {"data": data, "forgetting": {"method": "fixed_span"}}
        run, done = self.train(changes, {"train": {"validation_blocks": 0}}, cwd=self.folder)
        self.assertIn("8000 tokens", done.stderr)
        result = json.loads(self.succeed("eval", run, "--json", cwd=self.folder).stdout)
        self.assertEqual(result["tokens"], 400 - result["streams"])
        written = self.succeed("generate", run, "--prompt", "café", "--tokens", "30").stdout
        self.assertTrue(set(written) <= set(text) | {"\n", "\N{REPLACEMENT CHARACTER}"}, written)

    def test_words(self):
        zipped = self.write("text.gz", gzip.compress(TEXT.encode()))
        changes = {"data": {"path": str(zipped), "unit": "word", "min_count": 2, "split": [0.7, 0.2, 0.1]}}
        run, _ = self.train(changes, {"model": {"norm": "pre", "initialisation": "glorot"}})
        last = metrics(run)[-1]
        self.assertTrue(math.isclose(last["ppl"], math.exp(last["loss"])))
        result = self.succeed_json("eval", run, "--split", "all")
        self.assertGreater(result["tokens"], len(TEXT.split()) - 5)
        self.assertIn(" ", self.succeed("generate", run, "--prompt", "the river", "--tokens", "5").stdout)

    def test_other_recipes(self):
        """Optimisers, schedules, dropout and layer drop: the loss falls and the rate is the schedule's."""
        recipes = {
            "adamw": ({"schedule": "cosine", "weight_decay": 0.1}, {"dropout": 0.2, "head_dim": 5}),
            "rmsprop": ({"rate": 1e-3}, {"layer_drop": 0.3, "norm": "pre", "initialisation": "glorot"}),
            "sgd": ({"rate": 0.5, "momentum": 0.9, "clip": 1.0}, {"dropout": 0.1, "heads": 4}),
        }
        for name, (optimiser, model) in recipes.items():
            with self.subTest(optimiser=name):
                method = "fixed_span" if name == "sgd" else "expire_span"
                changes = {"optimiser": {"name": name, **optimiser}, "model": model, "forgetting": {"method": method}}
                random = {
                    "expire_span": {"random_drop": True, "initial_memory": "zeros", "divide": "all", "divisor": 2}
                }
                run, _ = self.train(changes, random, out=name)
                self.assertLess(losses(run, "valid")[-1], losses(run)[0])
                rates = [line["rate"] for line in metrics(run) if line["split"] == "train"]
                cosine = [3e-3 * 0.5 * (1 + math.cos(math.pi * (n - 5) / 15)) for n in (5, 10, 15, 20)]
                numpy.testing.assert_allclose(rates, cosine if name == "adamw" else [optimiser["rate"]] * 4, atol=1e-12)

    def test_parts_of_a_batch_make_the_same_update(self):
        changes = {"train": {"batch": 4, "log_every": 1, "validate_every": 0}}
        whole, _ = self.train(changes, SPANS, out="whole")
        parts, _ = self.train(changes, SPANS, {"train": {"parts": 2}}, out="parts")
        for a, b in zip(metrics(whole), metrics(parts), strict=True):
            for key in ("loss", "cost", "gradient_norm"):
                self.assertTrue(math.isclose(a[key], b[key], rel_tol=1e-5), f"update {a['update']}, {key}: {a} {b}")
            # Rounding may move a span; how many rows a layer holds hardly.
            for one, other in zip(a["layers"], b["layers"], strict=True):
                self.assertLess(abs(one["memory_mean"] - other["memory_mean"]), 0.05)

    def test_validation_reads_in_streams_of_its_own(self):
        text = self.write("text.txt", english(4000))
        lines = {}
        for streams in (0, 1, 3):  # of one and of two parts
            run = self.folder / f"run-{streams}"
            self.succeed("train", self.config(text), "--out", run, "--quiet", "--set", "train.parts=2", "--set", f"train.validation_streams={streams}")
            lines[streams] = {split: [line["loss"] for line in metrics(run) if line["split"] == split] for split in ("train", "valid")}
            self.assertEqual(self.succeed_json("eval", run, "--split", "valid")["streams"], streams or TINY["train"]["batch"])
        for streams in (1, 3):
            self.assertEqual(lines[streams]["train"], lines[0]["train"])
            self.assertNotEqual(lines[streams]["valid"], lines[0]["valid"])

    def test_fine_tuning(self):
        fine = {"train": {"from": str(shared / "expire"), "updates": 6, "log_every": 1}, "optimiser": {"rate": 1e-4}}
        run, _ = self.train(fine, SPANS)
        lines = metrics(run)
        self.assertTrue(all(line["rate"] == 1e-4 for line in lines if line["split"] == "train"), "no warm-up")
        self.assertLess(lines[0]["loss"], losses(shared / "expire")[0] - 1, "begins with the weights of the run")
        with safe_open(checkpoints(run)[0], "numpy") as file:
            self.assertEqual(file.get_tensor("optimiser.steps"), [26], "keeps the moments")
        self.assertLess(lines[0]["layers"][0]["memory_max"], 9, "memory restarted")

    def test_plain_lines_elsewhere_a_bar_on_a_terminal(self):
        _, done = self.train(out="plain")
        self.assertNotIn("\r", done.stderr)
        self.assertIn("update 20: valid", done.stderr)
        _, quiet = self.train(out="quiet", arguments=["--quiet"])
        self.assertEqual(quiet.stdout + quiet.stderr, "")
        self.assertIn("\r", self.on_terminal())

    def on_terminal(self):
        """What a short run writes to a terminal."""
        config = self.config(shared / "text.txt", {"train": {"updates": 3, "validate_every": 0}})
        ours, theirs = pty.openpty()
        process = start("train", config, "--out", self.folder / "terminal", stderr=theirs)
        os.close(theirs)
        seen = b""
        try:
            while chunk := os.read(ours, 4096):
                seen += chunk
        except OSError:  # how a terminal says that its other side has gone
            pass
        os.close(ours)
        process.communicate()
        self.assertEqual(process.returncode, 0)
        return seen.decode()


class Eval(ProgramTest):
    def test_agrees_with_the_last_validation(self):
        for name in ("expire", "fixed"):
            last = metrics(shared / name)[-1]
            result = json.loads(self.succeed("eval", name, "--split", "valid", "--json", cwd=shared).stdout)
            self.assertEqual((result["split"], result["streams"], result["tokens"]), ("valid", 2, 992))
            self.assertTrue(math.isclose(result["loss"], last["loss"], rel_tol=1e-7))
            self.assertTrue(math.isclose(result["bpb"], last["bpb"], rel_tol=1e-7))
            self.assertEqual(result["layers"], last["layers"])
            self.assertTrue(result["complete"])
            for field in ("seconds", "tokens_per_second", "peak_memory"):
                self.assertGreater(result[field], 0)

    def test_block_size_changes_nothing(self):
        for name in ("expire", "fixed"):
            results = [
                self.succeed_json("eval", shared / name, "--data", shared / "text.txt", "--block", block)
                for block in (8, 3, 61)
            ]
            for other in results[1:]:
                self.assertTrue(math.isclose(results[0]["loss"], other["loss"], rel_tol=1e-5))
                for a, b in zip(results[0]["layers"], other["layers"]):
                    self.assertTrue(math.isclose(a["memory_mean"], b["memory_mean"], rel_tol=1e-9))
                    self.assertEqual(a["memory_max"], b["memory_max"])

    def test_bfloat16_is_close_but_not_the_same(self):
        for name in ("expire", "fixed"):
            exact, rounded = (
                self.succeed_json("eval", shared / name, "--data", shared / "text.txt", "--precision", precision)
                for precision in ("float32", "bf16")
            )
            self.assertNotEqual(exact["loss"], rounded["loss"])
            self.assertTrue(math.isclose(exact["loss"], rounded["loss"], rel_tol=0.01))
            bytes_held = [
                self.succeed_json("generate", shared / name, "--tokens", 20, "--temperature", 0, "--precision", precision)["memory_bytes"]
                for precision in ("float32", "bf16")
            ]
            self.assertLess(bytes_held[1], 0.75 * bytes_held[0])
        self.refuse("generate", shared / "fixed", "--precision", "half", says=["--precision", "bf16"])

    def test_shorter_spans_remember_less(self):
        data = ("--data", shared / "text.txt", "--streams", 1)
        for name, ramp in (("expire", 4), ("fixed", 0)):
            whole = self.succeed_json("eval", shared / name, *data)
            # The flag before the run and after it, with = and without.
            short = self.succeed_json("eval", "--max-span", 5, shared / name, *data)
            same = self.succeed_json("eval", shared / name, *data, "--max-span=5")
            self.assertEqual(short["loss"], same["loss"])
            self.assertNotEqual(short["loss"], whole["loss"])
            for layer, shorter in zip(whole["layers"], short["layers"]):
                self.assertGreater(layer["memory_max"], 10)
                self.assertLess(shorter["memory_max"], 5 + ramp + (name == "fixed"))
                self.assertLess(shorter["memory_mean"], layer["memory_mean"])

    def test_whole_text_streams_and_table(self):
        zipped = self.write("some.gz", gzip.compress(TEXT[:1001].encode()))
        result = self.succeed_json("eval", shared / "expire", "--data", zipped, "--split", "all", "--streams", 3)
        self.assertEqual(result["tokens"], 3 * (1001 // 3 - 1))
        done = self.succeed("eval", checkpoints(shared / "expire")[1], "--data", zipped, "--threads", 1)
        self.assertIn("bits per byte", done.stdout)
        self.assertEqual([line.split()[0] for line in done.stdout.splitlines()[-3:]], ["0", "1", "all"])
        self.assertRegex(done.stderr, r"^eval 100%  (\d+)/\1 block.*\d bpb\n$")


class Generate(ProgramTest):
    def generate(self, *arguments, name="expire"):
        return self.succeed_json("generate", shared / name, *arguments)

    def test_a_seed_gives_its_text(self):
        first, again, other = (self.generate("--tokens", 60, "--seed", seed) for seed in (3, 3, 4))
        self.assertEqual((first["text"], first["tokens"]), (again["text"], again["tokens"]))
        self.assertNotEqual(first["tokens"], other["tokens"])
        self.assertEqual(len(first["tokens"]), 60)
        self.assertEqual((first["prompt"], first["prompt_tokens"]), ("\n", 1))
        for field in ("ms_per_token", "memory_bytes", "peak_memory"):
            self.assertGreater(first[field], 0)
        narrow = self.generate("--tokens", 40, "--top-k", 2, "--top-p", 0.9, "--temperature", 1.5)
        self.assertLess(len(set(narrow["tokens"])), len(set(first["tokens"])))

    def test_reading_block_by_block_is_reading_step_by_step(self):
        """At temperature 0: what it wrote one token at a time, fed as a prompt in blocks, is continued alike."""
        for name in ("expire", "fixed"):
            prompt = "The winter garden forgets slowly."
            whole = self.generate("--prompt", prompt, "--tokens", 40, "--temperature", 0, name=name)
            split = 21
            begun = prompt + bytes(whole["tokens"][:split]).decode()
            rest = self.generate("--prompt", begun, "--tokens", 40 - split, "--temperature", 0, name=name)
            self.assertEqual(whole["tokens"][split:], rest["tokens"])
            self.assertEqual(whole["memory_sizes"], rest["memory_sizes"])
            self.assertEqual(rest["prompt_tokens"], len(begun))

    def test_remembered(self):
        for name, extra in (("expire", ()), ("fixed", ()), ("fixed", ("--max-span", 5))):
            result = self.generate("--tokens", 70, "--remembered", *extra, name=name)
            self.assertEqual(len(result["remembered"]), 71)
            self.assertEqual(sum(result["remembered"]), sum(result["memory_sizes"]))
            self.assertLessEqual(max(result["remembered"]), 2)
            self.assertEqual(result["remembered"][0], 0, "the prompt is forgotten")
            if name == "fixed":
                self.assertEqual(result["memory_sizes"], [extra[1] if extra else 12] * 2)

    def test_text(self):
        arguments = ("generate", shared / "expire", "--prompt", "The river", "--tokens", 20, "--temperature", 0)
        plain = self.succeed(*arguments).stdout
        self.assertTrue(plain.startswith("The river"))
        self.assertEqual(len(plain), len("The river") + 20 + 1)
        shown = self.succeed(*arguments, "--remembered").stdout
        self.assertTrue(shown.startswith(plain))
        self.assertIn("in brackets, in one or more of 2 layers; memory sizes of the layers: ", shown)
        self.assertEqual(shown.splitlines()[-1].replace("[", "").replace("]", ""), plain.splitlines()[-1])
        self.assertNotIn("\x1b", shown)
        coloured = self.succeed(*arguments, "--remembered", "--color", "always").stdout
        self.assertIn("the darker, in the more of 2 layers", coloured)
        self.assertIn("\x1b[30;48;5;", coloured)

    def test_endless_until_interrupted(self):
        process = start("generate", shared / "expire", "--tokens", 0, "--prompt", "The", text=False)
        seen = process.stdout.read(300)
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)
        self.assertEqual((process.returncode, errors), (0, b""))
        self.assertTrue(seen.startswith(b"The") and rest.endswith(b"\n"))

    def test_interrupted_before_its_end(self):
        for more, written in (((), b"The"), (("--json",), b"")):
            process = start("generate", shared / "expire", "--tokens", 10_000_000, "--prompt", "The", *more, text=False)
            seen = process.stdout.read(3 if written else 0)
            time.sleep(1)
            process.send_signal(signal.SIGINT)
            rest, errors = process.communicate(timeout=60)
            self.assertEqual((process.returncode, seen), (1, written))
            self.assertRegex(errors.decode(), r"^lapse: error: interrupted after \d+ of 10000000 tokens\n$")
            if more:
                self.assertFalse(json.loads(rest)["complete"])
        self.assertTrue(self.generate("--tokens", 3)["complete"])

    def test_a_reader_that_leaves_ends_it(self):
        process = start("generate", shared / "expire", "--tokens", 0, text=False)
        process.stdout.read(100)
        process.stdout.close()
        self.assertIn(process.wait(timeout=60), (0, -signal.SIGPIPE))
        self.assertEqual(process.stderr.read(), b"")
        process.stderr.close()


class Help(ProgramTest):
    def test_help(self):
        printed = self.succeed("--help").stdout
        for verb in ("train", "eval", "generate", "info", "golden"):
            self.assertIn(verb, printed)
        for verb in ("eval", "generate"):
            self.assertIn("--max-span", self.succeed(verb, "--help").stdout)


if __name__ == "__main__":
    unittest.main()
