"""Generated tasks and subwords through the program: trained, evaluated, resumed, and what is refused."""

import math
import re
import unittest

from program import TINY, ProgramTest, checkpoints, english, merged, metrics, toml
from safetensors import safe_open

# Each task so small that a run takes a fraction of a second, and the block that holds its sequences.
TASKS = {
    "variable_assignment": ({"repetitions": 3, "values": 8, "valid_sequences": 20, "test_sequences": 30}, 8),
    "copy": ({"longest": 4, "alphabet": 3, "valid_sequences": 20, "test_sequences": 30}, 12),
    "parity": ({"bits": 5, "valid_sequences": 20, "test_sequences": 30}, 10),
    "long_copy": ({"gap": 11, "valid_sequences": 20, "test_sequences": 30}, 8),
    "instruction": ({"rounds": 8, "valid_words": 320, "test_words": 600}, 8),
    "collision": ({"train_steps": 400, "valid_steps": 300, "test_steps": 2000}, 16),
}
CLOCK = {"ms_per_update", "tokens_per_second", "resident_memory", "peak_memory"}


def without_clock(lines):
    return [{k: v for k, v in line.items() if k not in CLOCK} for line in lines]


class Task(ProgramTest):
    def config(self, task, *changes, name="config.toml"):
        options, block = TASKS[task]
        train = {"block": block, "validation_blocks": 0}
        return self.write(
            name, toml(merged(TINY, {"data": {"task": task}, task: options, "train": train}, *changes))
        )

    def train(self, task, *changes, out="run", arguments=()):
        config = self.config(task, *changes, name=f"{out}.toml")
        done = self.succeed("train", config, "--out", self.folder / out, *arguments)
        return self.folder / out, done

    def test_no_task_is_left_out(self):
        shown = self.succeed("train", "--help", "data").stdout
        listed = re.search(r"one of none, ([\w,\s]+)\)", shown)[1]
        environments = re.search(r"lapse play ([\w|]+)", self.succeed("play", "--help").stdout)[1].split("|")
        self.assertEqual({*TASKS, *environments}, set(re.split(r",\s+", listed)), "give it small options in TASKS of this file")

    def test_every_task(self):
        for task in TASKS:
            with self.subTest(task=task):
                run, done = self.train(task, out=task)
                self.assertIn(f"task {task}: ", done.stderr)
                lines = metrics(run)
                valid = [line for line in lines if line["split"] == "valid"]
                for line in valid:
                    self.assertTrue(0 <= line["accuracy"] <= 1)
                self.assertTrue(all("accuracy" in line for line in lines if task != "collision"))
                result = self.succeed_json("eval", run, "--split", "valid")
                for key in set(result) & {"loss", "accuracy", "answer_accuracy"}:
                    self.assertTrue(math.isclose(result[key], valid[-1][key], rel_tol=1e-6), key)
                printed = self.succeed("eval", run).stdout
                first = {"long_copy": "whole answers right", "instruction": "executions right"}.get(task, "accuracy")
                self.assertTrue(printed.startswith(first), printed)
                self.assertIn("accuracy", printed)
                self.assertIn("token", self.succeed("info", run).stdout)

    def test_how_much_is_scored(self):
        for task, per_sequence in (("variable_assignment", 1), ("parity", 5)):
            run, _ = self.train(task, out=task)
            result = self.succeed_json("eval", run)
            self.assertEqual((result["scored"], result["split"]), (30 * per_sequence, "test"))
            other = self.succeed_json("eval", run, "--test-seed", 2, "--streams", 7)
            self.assertEqual(other["scored"], result["scored"])
            self.assertNotEqual(other["loss"], result["loss"])
        run, _ = self.train("long_copy", out="long")
        result = self.succeed_json("eval", run)
        self.assertEqual(result["answers"], 30)
        self.assertGreater(result["scored"], 2 * 30)

    def test_a_set_that_asks_for_nothing_says_so(self):
        run, _ = self.train("instruction", {"instruction": {"rounds": 8, "valid_words": 40, "test_words": 40}}, out="few")
        self.assertEqual(self.succeed_json("eval", run)["answers"], 0)
        self.assertRegex(self.succeed("eval", run).stdout, r"(?m)^answers +0$")

    def test_updates_in_which_nothing_is_scored_have_no_loss(self):
        small = {"long_copy": {"gap": 40}, "train": {"block": 8, "updates": 30, "log_every": 1, "validate_every": 0}}
        run, _ = self.train("long_copy", small, out="every")
        every = metrics(run)
        self.assertTrue({"loss" in line for line in every} == {True, False})
        self.assertGreater(min(line["loss"] for line in every if "loss" in line), 0.01)
        self.train("long_copy", small, {"train": {"objective": "language_modelling"}}, out="predicted")
        run, _ = self.train("long_copy", small, {"train": {"log_every": 10}}, out="tenth")
        for line in metrics(run):
            losses = [one["loss"] for one in every if line["update"] - 10 < one["update"] <= line["update"] and "loss" in one]
            self.assertEqual("loss" in line, bool(losses))
            if losses:
                self.assertAlmostEqual(line["loss"], sum(losses) / len(losses), delta=1e-6)

    def test_streams_and_blocks_change_nothing_of_independent_sequences(self):
        run, _ = self.train("copy")
        results = [self.succeed_json("eval", run, "--streams", n) for n in (1, 7, 30)]
        for other in results[1:]:
            self.assertTrue(math.isclose(results[0]["loss"], other["loss"], rel_tol=1e-5))
            self.assertEqual(results[0]["scored"], other["scored"])
            self.same_memory(results[0], other)  # padding is not read

    def test_learning(self):
        """A copy of one letter must be read from memory, two tokens back: every answer is right soon."""
        long = {"train": {"updates": 150, "batch": 16, "validate_every": 150}, "optimiser": {"rate": 1e-2}}
        run, _ = self.train("copy", {"copy": {"longest": 1}}, long)
        self.assertEqual(self.succeed_json("eval", run)["answer_accuracy"], 1)

    def test_out_of_distribution(self):
        run, _ = self.train("variable_assignment")
        ordinary, other = self.succeed_json("eval", run), self.succeed_json("eval", run, "--ood-values", 2)
        self.assertNotEqual(ordinary["loss"], other["loss"])
        self.refuse("eval", run, "--ood-values", 9, says=["--ood-values: 9 is out of range", "0 ... 8"])

    def test_resumes_to_the_bit(self):
        for task in TASKS:
            with self.subTest(task=task):
                small = {"train": {"updates": 24, "log_every": 5, "checkpoint_every": 8, "batch": 4, "parts": 2}}
                whole, _ = self.train(task, small, out=f"{task}-whole")
                broken, _ = self.train(task, small, {"train": {"updates": 13}}, out=f"{task}-broken")
                self.train(task, small, out=f"{task}-broken", arguments=["--resume"])
                # The shorter run's last update had validated; the longer one's did not.
                ours = [line for line in without_clock(metrics(broken)) if (line["update"], line["split"]) != (13, "valid")]
                self.assertEqual(ours, without_clock(metrics(whole)))
                weights = []
                for run in (whole, broken):
                    with safe_open(checkpoints(run)[0], "numpy") as file:
                        weights.append({name: file.get_tensor(name).tobytes() for name in file.keys()})
                self.assertEqual(*weights)

    def test_parts_of_a_batch_make_the_same_update(self):
        changes = {"train": {"batch": 4, "log_every": 1, "validate_every": 0}}
        whole, _ = self.train("long_copy", changes, out="whole")
        parts, _ = self.train("long_copy", changes, {"train": {"parts": 2}}, out="parts")
        for a, b in zip(metrics(whole), metrics(parts), strict=True):
            for key in ("loss", "gradient_norm"):
                self.assertEqual(key in a, key in b)  # there is no loss where nothing is scored
                self.assertTrue(key not in a or math.isclose(a[key], b[key], rel_tol=1e-4, abs_tol=1e-6), f"{a} {b}")

    def test_absolute_positions(self):
        changes = {"model": {"positions": "absolute", "attend_self": True}, "forgetting": {"method": "fixed_span"}}
        run, _ = self.train("copy", changes)
        self.assertGreater(self.succeed_json("eval", run)["scored"], 0)
        path = self.config("long_copy", changes)
        self.refuse("train", path, "--out", self.folder / "none", says=["absolute", "streams without end"])

    def test_generate(self):
        run, _ = self.train("copy")
        made = self.succeed_json("generate", run, "--prompt", "a b |", "--tokens", 3)
        self.assertEqual(len(made["text"].split()), len([t for t in made["tokens"] if t != 5]))
        copied = self.succeed_json("generate", run, "--prompt", "<bos> a b |", "--tokens", 3)  # as `lapse task show` prints it
        self.assertEqual(copied["text"], made["text"])
        self.refuse("generate", run, "--prompt", "a <bos>", says="no token '<bos>'")
        self.refuse("generate", run, "--prompt", "z", says="no token 'z'")
        self.refuse("eval", run, "--data-documents", "lines", says="leave out --data-documents")
        streams, _ = self.train("long_copy", out="streams")
        self.refuse("generate", streams, "--tokens", 2, says=["knows no line end", "--prompt"])
        done = self.succeed("inspect", streams, "--tokens", 5000, "-o", self.folder / "page.html")
        self.assertRegex(done.stderr, r"lapse: note: split 'test' has \d+ tokens to read, not 5000\n")
        run, _ = self.train("collision", out="collision")
        self.refuse("generate", run, "--prompt", "row1", says=["collision", "labels"])

    def test_refused(self):
        def refuse(task, *changes, says):
            self.refuse("train", self.config(task, *changes), "--out", self.folder / "none", says=says)
            self.assertFalse((self.folder / "none").exists())

        path = self.write("config.toml", '[data]\ntask = "copi"\n')
        self.refuse("train", path, "--out", self.folder / "none", says=["config.toml:2:", "did you mean 'copy'"])
        refuse("copy", {"data": {"path": "text.txt"}}, says=["data.task", "leave out data.path"])
        refuse("copy", {"data": {"valid": "text.txt"}}, says="leave out data.valid")
        refuse("copy", {"data": {"unit": "word"}}, says="leave out data.unit")
        refuse("copy", {"data": {"windows": True}}, says="leave out data.windows")
        refuse("copy", {"train": {"block": 9}}, says=["up to 10 tokens", "train.block = 9", "set train.block = 10"])
        refuse("copy", {"copy": {"longst": 3}}, says="did you mean 'longest'")
        refuse("collision", {"collision": {"train_steps": 10}, "train": {"batch": 4}}, says=["collision.train_steps = 10", "has 80 tokens"])
        run, _ = self.train("copy")
        self.refuse("eval", run, "--data", self.write("a.txt", "a"), says=["task, copy", "leave out --data"])
        self.refuse("eval", run, "--split", "train", says=["no split 'train'", "valid or test"])
        self.refuse("eval", run, "--ood-values", 2, says=["no option of the run's task, copy", "have it: variable_assignment"])
        config = self.config("parity", {"train": {"from": str(run)}})
        self.refuse("train", config, "--out", self.folder / "none", says="reads other tokens than data.task")


class Tokenizer(ProgramTest):
    def setUp(self):
        super().setUp()
        self.text = self.write("text.txt", english(30000) + "naïve café – 中文\n" * 20)

    def make(self, *arguments, name="a.model", vocabulary=360):
        return self.succeed(
            "tokenizer", "train", "--data", self.text, "--vocabulary", vocabulary, "-o", self.folder / name, *arguments
        )

    def config(self, *changes, **data):
        data = {"path": str(self.text), "unit": "subword", "tokenizer": str(self.folder / "a.model"), **data}
        return self.write("config.toml", toml(merged(TINY, {"data": data}, {"train": {"validation_blocks": 0}}, *changes)))

    def test_makes_the_same_file_again(self):
        self.assertIn("bytes a piece", self.make().stderr)
        self.assertEqual(self.make("--quiet", name="b.model").stderr, "")
        self.assertEqual((self.folder / "a.model").read_bytes(), (self.folder / "b.model").read_bytes())
        self.make("--kind", "bpe", name="c.model")
        self.assertNotEqual((self.folder / "a.model").read_bytes(), (self.folder / "c.model").read_bytes())

    def test_learns_from_the_training_part_alone(self):
        self.make("--quiet", "--fraction", 0.9, name="part.model")
        text = self.text.read_bytes()
        end = next(i for i in range(round(0.9 * len(text)), len(text)) if text[i] in b" \n")
        whole, self.text = self.text, self.folder / "training-part.txt"
        self.text.write_bytes(text[:end])
        self.make("--quiet", name="alone.model")
        self.text = whole
        self.make("--quiet", name="whole.model")
        models = [(self.folder / f"{name}.model").read_bytes() for name in ("part", "alone", "whole")]
        self.assertEqual(models[0], models[1])
        self.assertNotEqual(models[0], models[2])

    def test_a_run_needs_no_file_beside_it(self):
        self.make("--quiet")
        for name, windows in (("streams", False), ("windows", True)):
            (self.folder / "a.model").exists() or self.make("--quiet")
            run = self.folder / name
            self.succeed("train", self.config(windows=windows), "--out", run)
            (self.folder / "a.model").unlink()
            last = [line for line in metrics(run) if line["split"] == "valid"][-1]
            result = self.succeed_json("eval", run, "--split", "valid")
            if not windows:  # validation leaves out what fills no block
                self.assertLess(abs(result["bpb"] - last["bpb"]), 0.1)
            whole = self.succeed_json("eval", run, "--split", "all", "--data", self.text, "--streams", 1)
            # Of a stream all but the first token is predicted, of windows everything.
            size = self.text.stat().st_size
            bytes_read = whole["loss"] * whole["tokens"] / math.log(2) / whole["bpb"]
            self.assertLess(abs(bytes_read - size), 15 if not windows else 0.01)
            prompt = "The river forgets – 中文 "
            made = self.succeed_json("generate", run, "--prompt", prompt, "--tokens", 10)
            self.assertGreater(made["prompt_tokens"], 5)
            self.assertEqual(self.succeed_json("info", run)["unit"], "subword")
            self.succeed("train", self.config(windows=windows), "--out", run, "--resume", "--set", "train.updates=22")

    def test_every_unit_reports_bits_per_byte(self):
        self.make("--quiet")
        for unit, metric in (("word", "ppl"), ("character", "bpc"), ("subword", "bpb")):
            tokenizer = str(self.folder / "a.model") if unit == "subword" else ""
            run = self.folder / unit
            self.succeed("train", self.config(unit=unit, tokenizer=tokenizer), "--out", run)
            for line in metrics(run):
                self.assertGreater(line["bpb"], 0)
                self.assertIn(metric, line)
            result = self.succeed_json("eval", run)
            self.assertGreater(result["bpb"], 0)
            self.assertIn("bits per byte", self.succeed("eval", run).stdout)

    def test_refused(self):
        make = ("tokenizer", "train", "--data", self.text, "-o", self.folder / "a.model")
        self.refuse("tokenizer", says="a verb is required")
        self.refuse("tokenizer", "trian", says=["'trian'", "did you mean 'train'", "lapse tokenizer --help"])
        self.refuse(*make, "--vocabulry", 400, says=["--vocabulry", "did you mean '--vocabulary'"])
        self.refuse(*make, "--kind", "words", says="--kind")
        self.refuse(*make, "--quiet", "--vocabulary", 260, says=["260 pieces is too small", "give at least"])
        self.refuse(*make, "--quiet", "--vocabulary", 1000000, says=["1000000", "too high"])
        self.refuse("tokenizer", "train", "--quiet", "--data", self.folder / "none", "-o", "x", says="No such file")
        empty = self.write("empty.txt", "")
        self.refuse("tokenizer", "train", "--quiet", "--data", empty, "-o", self.folder / "x", says="the file is empty")
        self.assertFalse((self.folder / "a.model").exists())
        out = ("--out", self.folder / "none")
        self.refuse("train", self.config(), *out, says=["data.tokenizer: there is no file", "a.model'", "lapse tokenizer train"])
        self.refuse("train", self.config(tokenizer=""), *out, says=["data.tokenizer", "lapse tokenizer train"])
        self.refuse("train", self.config(tokenizer=str(self.text)), *out, says="not a SentencePiece model")
        self.refuse("train", self.config(unit="subwrod"), *out, says="did you mean 'subword'")
        train = ["tokenizer", "train", "--data", self.text]
        self.refuse(*train, "--out", self.folder / "none" / "a.model", says=["there is no folder", "none"])
        self.refuse(*train, "--out", self.folder, says="is a folder; name a file")
        self.refuse(*train, "--out", self.folder / "b.model", "--fraction", 0, says="--fraction 0")


if __name__ == "__main__":
    unittest.main()
