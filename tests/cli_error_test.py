"""Every verb on bad input: one clear line on stderr, a status that is not 0, and nothing half written."""

import gzip
import json
import os
import pathlib
import shutil
import unittest

from hostile_test import Parts
from program import TINY, ProgramTest, checkpoints, english, lapse, merged, metrics, shared_folder, toml

TEXT = english(4000)

shared = None  # the folder of a run that many tests copy or read


def setUpModule():
    global shared
    shared = shared_folder()
    (shared / "text.txt").write_text(TEXT)
    (shared / "config.toml").write_text(toml(merged(TINY, {"data": {"path": str(shared / "text.txt")}})))
    done = lapse("train", shared / "config.toml", "--out", shared / "run")
    assert done.returncode == 0, done.stderr


class Arguments(ProgramTest):
    def test_verbs_and_flags(self):
        self.refuse("evil", says=["unknown verb 'evil'", "did you mean 'eval'"], status=2)
        self.refuse("xyzzy", says=["unknown verb 'xyzzy'", "lapse help"])
        self.refuse("--vresion", says=["unknown flag '--vresion'", "did you mean '--version'"], status=2)
        for odd in ("x\ny", "x\x1b[2Jy", "x" * 5000):  # what is quoted stays one line that a terminal can bear
            for arguments in ((odd,), ("task", "show", "copy", "--seed", odd)):
                line = self.refuse(*arguments, says="x", status=2).stderr
                self.assertTrue(line.rstrip("\n").isprintable() and len(line) < 1100, line)
        self.refuse("task", "show", "copy", "--set", "longest=3", says="'longest=3' lacks its section: 'longest' belongs to [copy]", status=1)
        self.refuse("train", "--hlep", says=["unknown flag --hlep", "did you mean '--help'"], status=2)
        run = shared / "run"
        self.refuse("eval", run, "--strems", "2", says=["unknown flag --strems", "did you mean '--streams'"])
        self.refuse("eval", run, "--max-spam=2", says=["unknown flag --max-spam", "did you mean '--max-span'"])
        self.refuse("generate", run, "--tempreature", "2", says="did you mean '--temperature'")
        self.refuse("info", run, "more", says="unexpected argument 'more'", status=2)
        self.refuse("info", "--", "--strems", says="--strems: no such run", status=1)  # -- ends the options
        self.refuse("info", says="RUN is required")
        self.refuse("train", shared / "config.toml", says="--out is required")

    def test_names_one_step_off(self):
        run = shared / "run"
        self.refuse("train", run, "--out", self.folder / "other", says=["is a folder", str(run / "config.toml")], status=1)
        self.refuse("info", run / "checkpoints", says=["name the run's own folder", str(run)], status=1)
        self.refuse("eval", run / "config.toml", says=["no checkpoint", "name a run's folder"], status=1)
        picture = self.folder / "matrix.png"
        picture.write_text("a picture")
        self.refuse("inspect", run, "--matrix", "kept", "-o", picture, says=["writes JSON", "lapse plot"], status=1)
        self.assertEqual(picture.read_text(), "a picture")

    def test_a_section_of_a_method_that_is_not_named(self):
        """In a file it was hardly meant for the default method; where a method is named, other sections are there to choose from."""
        file, dry = self.folder / "config.toml", ("--dry-run", "--seconds", 0)
        file.write_text(toml({"data": {"path": str(shared / "text.txt")}, "h2o": {"budget": 5}}))
        note = f"lapse: note: [h2o] of '{file}' has no effect: no method is named, so it is expire_span"
        self.assertIn(note, self.succeed("train", file, *dry).stderr)
        self.assertNotIn("note:", self.succeed("train", file, *dry, "--set", "forgetting.method=fixed_span").stderr)
        file.write_text(file.read_text() + '[forgetting]\nmethod = "expire_span"\n')
        self.assertNotIn("note:", self.succeed("train", file, *dry).stderr)

    def test_values_that_nothing_depends_on(self):
        text, dry = shared / "text.txt", ("--dry-run", "--seconds", 0)
        for key in ("path", "train", "valid", "test"):
            done = self.succeed("train", shared / "config.toml", *dry, "--data", text, "--set", f"data.{key}={text}")
            self.assertIn(f"lapse: note: --set data.{key}={text} has no effect: --data stands in its place", done.stderr)
        for one, flag in (("train.threads=2", ("--threads", 1)), ("train.device=cuda", ("--device", "cpu"))):
            done = self.succeed("train", shared / "config.toml", *dry, "--set", one, *flag)
            self.assertIn(f"lapse: note: --set {one} has no effect: {flag[0]} stands in its place", done.stderr)
        unused = ("model.bucket_distance=20", "data.noise_density=0.3", "data.min_count=5", "optimiser.momentum=0.9", "optimiser.smoothing=0.5")
        used = ("data.split=[0.8,0.1,0.1]", "optimiser.beta1=0.8", "train.batch=2")
        sets = [part for one in unused + used for part in ("--set", one)]
        done = self.succeed("train", shared / "config.toml", *dry, *sets)
        for one in unused:
            self.assertIn(f"lapse: note: --set {one} has no effect on this run", done.stderr)
        self.assertEqual(done.stderr.count("has no effect"), len(unused), done.stderr)
        done = self.succeed("train", shared / "config.toml", *dry, "--set", "optimiser.name=sgd", "--set", "optimiser.momentum=0.9")
        self.assertNotIn("no effect", done.stderr)
        words = self.folder / "words.toml"  # whose vocabulary is counted, so that the run before can be what decides
        words.write_text(f'[data]\npath = "{text}"\nunit = "word"\n[train]\nbatch = 2\nblock = 8\nupdates = 1\n')
        self.succeed("train", words, "--out", self.folder / "before")
        for one in ("data.min_count=2", "data.max_vocabulary=9", "optimiser.warmup=5"):
            again = ("train", words, *dry, "--set", one)
            self.assertNotIn("no effect", self.succeed(*again).stderr)
            done = self.succeed(*again, "--set", f"train.from={self.folder / 'before'}")
            self.assertIn(f"lapse: note: --set {one} has no effect on this run", done.stderr)

    def test_values_that_methods_and_agents_do_not_use(self):
        cases = [(("fixed_span", "model.attend_self=true"), False), (("selective_attention", "model.attend_self=false"), True)]
        for (method, one), told in cases:
            done = self.succeed("train", shared / "config.toml", "--dry-run", "--seconds", 0, "--set", f"forgetting.method={method}", "--set", one)
            self.assertEqual(f"lapse: note: --set {one} has no effect on this run" in done.stderr, told, done.stderr)

    def test_values(self):
        run = shared / "run"
        self.refuse("eval", run, "--streams", "0", says="--streams")
        for option in ("--data", "--losses", "--against", "--choices"):  # as an unset variable of a shell
            self.refuse("eval", run, option, "", says=f"{option} is empty")
        self.refuse("eval", run, "--split", "half", says="--split")
        self.refuse("eval", run, "--max-span", "33", says=["--max-span: 33 is out of range", "0 ... 32"])
        self.refuse("eval", run, "--max-span", "many", says=["--max-span", "'many'"])
        self.refuse("eval", run, "--max-span", says=["--max-span", "VALUE is missing"])
        self.refuse("eval", run, "--streams", 1, "--streams", 2, says="--streams: given 2 times; give it once")
        self.refuse("eval", run, "--streams", "150", says="150")  # streams of one token
        self.refuse("generate", run, "--prompt", "", says="--prompt")
        self.refuse("generate", run, "--top-p", "2", says="--top-p")
        self.refuse("generate", run, "--tokens", "-1", says="--tokens")
        for verb in ("eval", "generate", "inspect", "prune"):
            self.refuse(verb, run, "--device", "cuda:99", says=['there is no device "cuda:99" here', "use cpu"])
        self.refuse(
            "train", shared / "config.toml", "--out", shared / "none", "--device", "gpu", says=['"gpu"', "use cpu"]
        )

    def test_numbers(self):
        """What is no number, and what is out of range, are told apart, with the bounds."""
        run = shared / "run"

        def whole(verb, flag, bounds, bad=("abc",), outside=("-1",)):
            for value in bad:
                self.refuse(verb, run, flag, value, says=[f"{flag}: '{value}' is not a whole number; give {bounds}"])
            for value in outside:
                self.refuse(verb, run, flag, value, says=[f"{flag}: {value} is out of range; give {bounds}"])

        def number(verb, flag, bounds, bad=("nan",), outside=("inf",)):
            for value in bad:
                self.refuse(verb, run, flag, value, says=[f"{flag}: '{value}' is not a number; give {bounds}"])
            for value in outside:
                self.refuse(verb, run, flag, value, says=[f"{flag}: {value} is out of range; give {bounds}"])

        spellings = ("abc", "1.5", "1e3", "", " 1", "0x10", "010", "+5", "nan")
        whole("generate", "--tokens", f"0 ... {2**50}", spellings, ("-1", "99999999999999999999"))
        whole("generate", "--threads", "1 ... 4096", outside=("0", "4097"))
        whole("eval", "--block", "1 ... 1048576")
        whole("inspect", "--tokens", "1 ... 200000")
        whole("prune", "--step", "1 ... 16777216")
        number("generate", "--top-p", "0 ... 1", ("nan", "-nan", "many", "", " 1", "0.5x"), ("-0.5", "1.01", "inf", "1e999"))
        number("generate", "--temperature", "0 ... 100")
        number("prune", "--threshold", "0 ... 1000000000")
        number("golden", "--tolerance", "0 ... 1")
        self.refuse("eval", run, "--split", "tset", says=["--split", "did you mean 'test'", "train, valid, test, all"])

    def test_options_of_other_methods_and_tasks(self):
        run = shared / "run"
        methods = ["methods that have it: fixed_span"]
        self.refuse("eval", run, "--method", "h2o", "--max-span", "5", says=["--max-span is no option of --method h2o", *methods])
        self.refuse("eval", run, "--budget", "5", says=["--budget is no option of the run's method, expire_span", "h2o, tova"])
        self.refuse("eval", run, "--ood-values", "5", says=["--ood-values is no option of the run, which reads a text", "tasks that have it"])

    def test_output_that_nobody_reads(self):
        """Where writing fails, and no signal ends the program for it."""
        for arguments in (("info", shared / "run"), ("eval", shared / "run", "--json"), ("generate", shared / "run")):
            reader, writer = os.pipe()
            os.close(reader)
            done = lapse(*arguments, stdout=writer, restore_signals=False)  # Python ignores SIGPIPE, and so will it
            os.close(writer)
            self.assertEqual(done.returncode, 1)
            self.assertIn("lapse: error: cannot write to standard output", done.stderr)

    def test_no_run(self):
        for verb in ("eval", "generate", "info"):
            self.refuse(verb, self.folder / "none", says=[str(self.folder / "none"), "no such"])
            self.refuse(verb, self.folder, says=[str(self.folder), "lapse train --out"])
        text = shared / "text.txt"
        self.refuse("info", text, says=[str(text), "no checkpoint"])
        self.refuse("eval", shared / "run", "--data", self.folder / "none.txt", says="none.txt")


class Configuration(ProgramTest):
    def train(self, content, *arguments, **expected):
        """A configuration that is refused, before anything is written."""
        path = self.write("config.toml", content)
        self.refuse("train", path, "--out", self.folder / "out", *arguments, **expected)
        self.assertFalse((self.folder / "out").exists())

    def test_keys(self):
        self.train("[train]\nbatch = 2\nblokc = 8\n", says=["config.toml:3:", "'blokc'", "did you mean 'block'"])
        self.train("[trian]\nbatch = 2\n", says=["config.toml:1:", "[trian]", "did you mean 'train'"])
        self.train("[train]\nwidth = 8\n", says=["config.toml:2:", "belongs to [model]"])
        self.train("[train]\nrate = 1\n", says=["config.toml:2:", "belongs to [compressive] or [optimiser]"])
        self.train('[forgetting]\nmethod = "expire_spam"\n', says=["config.toml:2:", "did you mean 'expire_span'"])

    def test_values(self):
        self.train('[model]\n\nwidth = "16"\n', says=["config.toml:3:", "model.width", "expected an integer"])
        self.train("[model]\nlayers = 0\n", says=["config.toml:2:", "model.layers", "0 is out of range", "1 ... 1024"])
        self.train("[optimiser]\nrate = nan\n", says=["config.toml:2:", "optimiser.rate"])
        self.train("[model]\nwidth = 10\nheads = 4\n", says=["model.width = 10", "model.heads = 4"])
        self.train("[train]\nbatch = 3\nparts = 2\n", says=["train.batch = 3", "train.parts = 2"])
        self.train("[data]\npath = 'a'\nsplit = [0.5, 0.6, 0.1]\n", says="fractions of sum 1")
        self.train("[data]\npath = 'a'\ntrain = 'b'\n", says="not both")
        self.train("[train]\nbatch = 2\n", says="no training text")

    def test_toml(self):
        self.train("[train]\nbatch = 2\nblock = [\n", says="config.toml:")
        self.train("[train]\nbatch = 2\nbatch = 3\n", says="config.toml:3:")
        self.train("\n\n[train\n", says="config.toml:3:")
        self.train(b'[data]\npath = "\xff\xfe"\n', says="config.toml:2:")
        self.train(b"\x00\x01\x02", says="config.toml:1:")
        self.refuse(
            "train", self.folder / "none.toml", "--out", self.folder / "out", says=["none.toml", "No such file"]
        )
        self.refuse("train", self.folder, "--out", self.folder / "out", says=str(self.folder))

    def test_set(self):
        good = (shared / "config.toml").read_bytes()
        self.train(good, "--set", "train.updtaes=2", says=["'train.updtaes=2'", "did you mean 'updates'"])
        self.train(good, "--set", "updates=2", says="'updates=2' lacks its section: 'updates' belongs to [train]")
        self.train(good, "--set", "update=2", says="section.key=value")
        self.train(good, "--set", "train.updates=two", says=["train.updates", "expected an integer"])
        self.train(good, "--set", "model.dropout=1.5", says=["model.dropout", "1.5 is out of range"])
        self.train(good, "--set", "optimiser.rate=1e20", says=["optimiser.rate", "out of range"])


class Text(ProgramTest):
    def refuse_text(self, content, says, **data):
        path = self.write("corpus", content)
        config = self.config(path, {"data": data})
        self.refuse("train", config, "--out", self.folder / "out", says=says)
        self.assertFalse((self.folder / "out").exists())

    def test_empty_and_tiny(self):
        self.refuse_text(b"", ["corpus", "empty"])
        self.refuse_text(gzip.compress(b""), ["corpus", "empty"])
        self.refuse_text(b"x", "tokens")
        self.refuse_text(TEXT[:35], ["tokens", "2 streams of 2 blocks of 8", "= 34"])  # 31 of them to train on
        # The validation part alone is too short for a block of each stream: said before hours of training.
        self.refuse_text(TEXT[:300], "validation")

    def test_damaged(self):
        whole = gzip.compress(TEXT.encode())
        self.refuse_text(whole[:-20], "corpus")
        self.refuse_text(whole[:30] + b"\x55" + whole[31:], "corpus")
        self.refuse_text(
            TEXT.encode()[:2000] + b"\xc3\x28" + b"text " * 200, ["corpus", "UTF-8", "2000"], unit="character"
        )
        self.refuse_text(b"\xff\xfe" + TEXT.encode("utf-16le"), ["corpus", "UTF-8"], unit="word")

    def test_missing(self):
        config = self.config(self.folder / "none.txt")
        self.refuse("train", config, "--out", self.folder / "out", says=["none.txt", "No such file"])
        self.refuse("train", self.config(self.folder), "--out", self.folder / "out", says=str(self.folder))

    def test_evaluation(self):
        run = shared / "run"
        empty = self.write("empty.txt", "")
        self.refuse("eval", run, "--data", empty, says=["empty.txt", "empty"])
        self.refuse("eval", run, "--data", self.write("one.txt", "a"), "--split", "all", says="tokens")
        cut = self.write("cut.gz", gzip.compress(TEXT.encode())[:500])
        self.refuse("eval", run, "--data", cut, says="cut.gz")


class Folder(ProgramTest):
    """What --out may be."""

    def setUp(self):
        super().setUp()
        self.run_folder = self.folder / "run"
        shutil.copytree(shared / "run", self.run_folder)

    def state(self):
        return {path: path.read_bytes() for path in self.run_folder.rglob("*") if path.is_file()}

    def refuse_train(self, *arguments, says):
        before = self.state()
        self.refuse("train", shared / "config.toml", "--out", self.run_folder, *arguments, says=says)
        self.assertEqual(self.state(), before)

    def test_a_run_is_not_overwritten(self):
        self.refuse_train(says=[str(self.run_folder), "--resume"])

    def test_a_resumed_run_keeps_its_model(self):
        more = ("--resume", "--set", "train.updates=30", "--set")
        self.refuse_train(*more, "model.width=32", says=["model.width = 16, not 32"])
        self.refuse_train(*more, "forgetting.method=fixed_span", says="forgetting.method")
        self.refuse_train(*more, "train.seed=2", says="train.seed")

    def test_a_resumed_run_keeps_its_text(self):
        for size in (len(TEXT), 5000):
            other = self.write("other.txt", english(size, seed=2))
            self.refuse_train("--resume", "--set", f"data.path={other}", says="another text")
        same = self.write("moved.txt", TEXT)
        config = shared / "config.toml"
        self.succeed("train", config, "--out", self.run_folder, "--resume", "--set", f"data.path={same}")

    def test_a_file_in_the_way(self):
        file = self.write("file", "mine")
        self.refuse("train", shared / "config.toml", "--out", file, says=str(file))
        self.refuse("train", shared / "config.toml", "--out", file / "run", says=str(file))
        self.assertEqual(file.read_text(), "mine")

    def test_a_tokenizer_without_subwords(self):
        arguments = ("--out", self.folder / "new", "--set", "data.tokenizer=x.model")
        self.refuse("train", shared / "config.toml", *arguments, says='data.tokenizer is for data.unit = "subword" and "t5"')

    def test_tuning_from_what_does_not_fit(self):
        out = self.folder / "tuned"
        for change, words in {"model.width=32": "weight.", "optimiser.name=rmsprop": "this run has"}.items():
            arguments = ("--set", f"train.from={self.run_folder}", "--set", change)
            self.refuse("train", shared / "config.toml", "--out", out, *arguments, says=[str(self.run_folder), words])
            self.refuse("train", shared / "config.toml", "--dry-run", *arguments, says=[str(self.run_folder), words])
            self.assertFalse(out.exists())
        self.refuse("train", shared / "config.toml", "--out", out, "--set", "train.from=nowhere", says="nowhere")
        self.assertFalse(out.exists())

    def test_tuning_with_another_method_drops_no_weights_of_the_model(self):
        gated, other = ("--set", "model.activation=swiglu"), ("--set", "forgetting.method=fixed_span", "--set", "fixed_span.max_span=8")
        self.succeed("train", shared / "config.toml", *gated, "--out", self.folder / "gated")
        tuned = ("train", shared / "config.toml", *other, "--set", f"train.from={self.folder / 'gated'}", "--out", self.folder / "tuned")
        self.refuse(*tuned, says="there is no place in the model for its tensor 'weight.layers.0.ff.gate'")
        self.succeed(*tuned, *gated)  # the spans' predictor is passed over


class DamagedCheckpoint(ProgramTest):
    def setUp(self):
        super().setUp()
        self.run_folder = self.folder / "run"
        shutil.copytree(shared / "run", self.run_folder)
        self.newest, self.older = checkpoints(self.run_folder)

    def truncate(self, path):
        path.write_bytes(path.read_bytes()[:-1000])

    def flip(self, path):
        content = bytearray(path.read_bytes())
        content[len(content) * 2 // 3] ^= 4  # a bit of a number: only the checksum can tell
        path.write_bytes(content)

    def check_fallback(self):
        done = self.succeed("info", self.run_folder, "--json")
        self.assertEqual(json.loads(done.stdout)["update"], 10)
        self.assertIn(f"lapse: warning: {self.newest}", done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1)
        done = self.succeed("eval", self.run_folder)
        self.assertIn("lapse: warning: ", done.stderr)
        self.refuse("generate", self.newest, says=[str(self.newest), "truncated or altered"])

    def check_resumes_to_the_same_end(self):
        self.newest.write_bytes(b"")
        done = self.succeed("train", shared / "config.toml", "--out", self.run_folder, "--resume")
        self.assertIn(f"lapse: warning: {self.newest}", done.stderr)
        self.assertEqual(self.newest.read_bytes(), checkpoints(shared / "run")[0].read_bytes())

    def test_truncated(self):
        self.truncate(self.newest)
        self.check_fallback()

    def test_one_bit(self):
        self.flip(self.newest)
        self.check_fallback()
        self.check_resumes_to_the_same_end()

    def test_a_damaged_one_is_set_aside(self):
        damaged = self.newest.read_bytes()[:-1000]
        self.newest.write_bytes(damaged)
        stop = self.older_update() + 1  # before the damaged one is reached again
        self.succeed("train", shared / "config.toml", "--out", self.run_folder, "--resume", "--set", f"train.updates={stop}")
        aside = self.newest.with_name(self.newest.name + ".damaged")
        self.assertEqual(aside.read_bytes(), damaged)
        self.assertFalse(self.newest.exists())

    def test_a_damaged_one_is_not_kept_in_place_of_a_whole_one(self):
        damaged = self.newest.with_name(f"update-{self.older_update() + 1:08}.safetensors")
        damaged.write_bytes(self.newest.read_bytes()[:-1000])
        self.newest.unlink()
        self.succeed("train", shared / "config.toml", "--out", self.run_folder, "--resume", "--set", "train.keep=2")
        self.assertEqual(checkpoints(self.run_folder), [self.newest, self.older])
        self.assertTrue(damaged.with_name(damaged.name + ".damaged").exists())

    def test_one_of_another_version_is_not_passed_over(self):
        parts = Parts(self.newest)
        parts.metadata["lapse.format"] = "999"
        parts.write(self.newest)
        written = self.newest.read_bytes()
        for arguments in (("eval", self.run_folder), ("train", shared / "config.toml", "--out", self.run_folder, "--resume")):
            self.refuse(*arguments, says=[str(self.newest), "999"])
        self.assertEqual(self.newest.read_bytes(), written)

    def test_a_copy_of_the_user_is_none_of_the_run(self):
        mine = self.newest.with_name("update-best.safetensors")
        shutil.copy(self.older, mine)
        update = self.older_update() * 2
        self.assertEqual(self.succeed_json("info", self.run_folder)["update"], update)
        self.succeed("train", shared / "config.toml", "--out", self.run_folder, "--resume", "--set", f"train.updates={update + 1}")
        self.assertEqual(mine.read_bytes(), checkpoints(shared / "run")[1].read_bytes())

    def older_update(self):
        return self.succeed_json("info", self.older)["update"]

    def test_none_left(self):
        self.truncate(self.newest)
        self.flip(self.older)
        for arguments in (
            ("info", self.run_folder),
            ("train", shared / "config.toml", "--out", self.run_folder, "--resume"),
        ):
            done = self.refuse(*arguments, says=[str(self.run_folder), "no usable checkpoint"], warns=True)
            self.assertEqual(len(done.stderr.splitlines()), 3, "two warnings and the error")


class Divergence(ProgramTest):
    def test_a_loss_that_is_not_finite_stops(self):
        # Weight decay of 10 at a rate of 50 multiplies all weights by -499, update by update.
        wild = {"optimiser": {"name": "sgd", "rate": 50.0, "weight_decay": 10.0, "clip": 0.0, "warmup": 0}}
        often = {"train": {"log_every": 1, "checkpoint_every": 1, "updates": 100, "keep": 3, "validate_every": 0}}
        config = self.config(shared / "text.txt", wild, often)
        run = self.folder / "run"
        done = self.refuse("train", config, "--out", run, says="the last good checkpoint is ", warns=True)
        error = done.stderr.splitlines()[-1]
        self.assertRegex(error, r"update \d+: the (loss|gradient norm) is -?(nan|inf)")
        stopped = int(error.split("update ")[1].split(":")[0])
        lines = metrics(run)
        self.assertEqual([line["update"] for line in lines], list(range(1, stopped)))
        self.assertNotIn("null", (run / "metrics.jsonl").read_text(), "every recorded number is finite")
        named = pathlib.Path(error.split("the last good checkpoint is ")[1].split(". ")[0])
        self.assertIn(named, checkpoints(run))
        self.assertIn(f"--set train.from={named}", error)
        last = json.loads(self.succeed("eval", named, "--split", "train", "--json").stdout)
        self.assertIsInstance(last["loss"], float)  # NaN would be null

    def test_without_a_checkpoint(self):
        wild = {"optimiser": {"name": "sgd", "rate": 100.0, "weight_decay": 10.0, "clip": 0.0, "warmup": 0}}
        config = self.config(
            shared / "text.txt", wild, {"train": {"checkpoint_every": 0, "validate_every": 0, "updates": 100}}
        )
        says = ["update ", "there is no checkpoint", "Begin anew with a lower optimiser.rate"]
        self.refuse("train", config, "--out", self.folder / "run", says=says, warns=True)


if __name__ == "__main__":
    unittest.main()
