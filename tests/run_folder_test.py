"""A run's folder: its history is never destroyed, one process writes at a time, and nothing half written stays."""

import json
import os
import resource
import shutil
import signal
import time
import unittest

from program import TINY, ProgramTest, checkpoints, english, environment, lapse, merged, metrics, shared_folder, start, toml
from prune_test import SELECTIVE

shared = None


def setUpModule():
    global shared
    shared = shared_folder()
    text = shared / "text.txt"
    text.write_text(english(20000))
    data = {"data": {"path": str(text)}}
    (shared / "config.toml").write_text(toml(merged(TINY, data)))
    (shared / "selective.toml").write_text(toml(merged(SELECTIVE, data)))
    for config, name, seed in (("config", "run", 1), ("selective", "one", 1), ("selective", "two", 2)):
        done = lapse("train", shared / f"{config}.toml", "--out", shared / name, "--set", f"train.seed={seed}")
        assert done.returncode == 0, done.stderr


class RunFolder(ProgramTest):
    def setUp(self):
        super().setUp()
        self.run_folder = self.folder / "run"
        self.config_file = shared / "config.toml"

    def copy(self, name="run"):
        shutil.copytree(shared / name, self.run_folder)

    def content(self):
        files = (path for path in self.run_folder.rglob("*") if path.is_file())
        return {path: path.read_bytes() for path in files}

    def refuse_train(self, says):
        """With --resume and without, and nothing changes."""
        before = self.content()
        for resume in ([], ["--resume"]):
            self.refuse("train", self.config_file, "--out", self.run_folder, *resume, says=says)
            self.assertEqual(self.content(), before)

    def start_long_run(self):
        """A run that ends only when it is told to, some updates on."""
        never = ("--set=train.updates=99999999", "--set=train.checkpoint_every=99999999")
        process = start("train", self.config_file, "--out", self.run_folder, *never)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        lines = self.run_folder / "metrics.jsonl"
        end = time.monotonic() + 60
        while not (lines.exists() and lines.stat().st_size > 0):
            self.assertIsNone(process.poll(), "the run ended by itself")
            self.assertLess(time.monotonic(), end, "the run records nothing")
            time.sleep(0.01)
        return process


class History(RunFolder):
    def test_names_that_are_no_utf_8(self):
        """A folder may have any bytes but / and 0 in its name."""

        def said(*arguments):
            done = lapse(*arguments, errors="replace")
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout

        run, selective = (os.fsdecode(bytes(self.folder) + name) for name in (b"/run\xff", b"/one\xff"))
        said("train", self.config_file, "--out", run)
        said("train", self.config_file, "--out", run, "--resume", "--set", "train.updates=24")
        for verb in ("eval", "info"):
            self.assertIn("run\ufffd", json.dumps(json.loads(said(verb, run, "--json")), ensure_ascii=False))
        shutil.copytree(shared / "one", selective)
        json.loads(said("prune", selective, "--threshold", 9, "--tokens", 2000, "--step", 16, "--json"))

    def test_without_checkpoints(self):
        self.copy()
        shutil.rmtree(self.run_folder / "checkpoints")
        self.refuse_train(says=[str(self.run_folder), "no checkpoints", "metrics.jsonl", "another --out"])
        (self.run_folder / "checkpoints").mkdir()
        self.refuse_train(says="no checkpoints")

    def test_checkpoints_that_cannot_be_listed(self):
        self.copy()
        folder = self.run_folder / "checkpoints"
        shutil.rmtree(folder)
        folder.symlink_to(self.folder / "away")  # a disk that is not mounted
        self.refuse_train(says=["cannot list", str(folder), "No such file"])
        folder.unlink()
        folder.write_text("")
        self.refuse_train(says=["cannot list", str(folder), "Not a directory"])
        for verb in ("eval", "info"):
            self.refuse(verb, self.run_folder, says=["cannot list", str(folder)])

    def test_a_newest_checkpoint_that_is_no_file(self):
        self.copy()
        newest, older = checkpoints(self.run_folder)
        newest.unlink()
        newest.symlink_to(self.folder / "away")
        done = self.succeed("train", self.config_file, "--out", self.run_folder, "--resume")
        self.assertIn(f"lapse: warning: {newest}: not a file", done.stderr)
        self.assertIn("resumed after update 10", done.stderr)

    def test_a_pipe_in_the_place_of_a_file(self):
        self.copy()
        lines = self.run_folder / "metrics.jsonl"
        lines.unlink()
        os.mkfifo(lines)
        more = ("--resume", "--set=train.updates=99")  # a complete run writes nothing
        self.refuse("train", self.config_file, "--out", self.run_folder, *more, says=[str(lines), "not a file"])

    def test_killed_early(self):
        """A run has a checkpoint from its beginning, so that one that is killed at once can be resumed."""
        often = ("--set", "train.checkpoint_every=99999999")
        process = start("train", self.config_file, "--out", self.run_folder, "--set=train.updates=99999999", *often)
        while not checkpoints(self.run_folder):
            time.sleep(0.01)
        process.kill()
        process.communicate()
        self.assertEqual([path.name for path in checkpoints(self.run_folder)], ["update-00000000.safetensors"])
        self.succeed("train", self.config_file, "--out", self.run_folder, "--resume")
        newest = [checkpoints(run)[0].read_bytes() for run in (self.run_folder, shared / "run")]
        self.assertEqual(newest[0], newest[1])

    def test_resumed_beyond_its_end(self):
        self.copy()
        done = self.succeed("train", self.config_file, "--out", self.run_folder, "--resume")
        self.assertIn("the run is complete: it has 20 updates, and train.updates = 20", done.stderr)
        self.assertIn("--set train.updates=N", done.stderr)
        before = (self.run_folder / "config.toml").read_text()
        self.succeed("train", self.config_file, "--out", self.run_folder, "--resume", "--set", "train.updates=3")
        self.assertEqual((self.run_folder / "config.toml").read_text(), before)  # it has 20 updates still

    def test_another_validation_text(self):
        text, other = self.write("a.txt", english(9000)), self.write("b.txt", english(9000, seed=7))
        files = ("--set", f"data.train={text}", "--set", f"data.valid={text}", "--set", "data.path=", "--out", self.run_folder)
        self.succeed("train", self.config_file, *files)
        more = ("--resume", "--set", "train.updates=30", "--set", f"data.valid={other}")
        self.refuse("train", self.config_file, *files, *more, says="the run was validated on another text than this one")
        tested = (*files[:-1], self.folder / "tested", "--set", f"data.test={text}")
        self.succeed("train", self.config_file, *tested)
        again = ("--resume", "--set", "train.updates=30", "--set", f"data.test={other}")
        self.refuse("train", self.config_file, *tested, *again, says="the run is to be tested on another text than this one")
        self.succeed("train", self.config_file, *files, *more[:3])

    def test_a_configuration_of_ones_own_stays(self):
        """A config.toml that lapse did not write is not written over; of a run, notes in it stay while its values do."""
        self.run_folder.mkdir()
        own = self.run_folder / "config.toml"
        notes = "# seeds 1 to 3 tried\n" + self.config_file.read_text()
        own.write_text(notes)
        for config in (own, self.config_file):
            self.refuse("train", config, "--out", self.run_folder, says=[str(own), "lapse did not write it", "another --out"])
        self.assertIn("training would refuse this", self.succeed("train", own, "--out", self.run_folder, "--dry-run", "--seconds", 0.01).stderr)
        self.assertEqual(own.read_text(), notes)
        own.unlink()
        self.succeed("train", self.config_file, "--out", self.run_folder)
        shutil.rmtree(self.run_folder / "checkpoints"), (self.run_folder / "metrics.jsonl").unlink()
        self.succeed("train", own, "--out", self.run_folder)  # as lapse wrote it
        written = own.read_text()
        own.write_text("# good\n" + written)
        self.succeed("train", own, "--out", self.run_folder, "--resume")
        self.assertEqual(own.read_text(), "# good\n" + written)
        self.succeed("train", own, "--out", self.run_folder, "--resume", "--set", "train.updates=30")
        self.assertEqual(own.read_text(), written.replace("updates = 20", "updates = 30"))

    def test_read_with_another_text(self):
        """Reading warns where a part of the run's own text is not what it was in training."""
        parts = ("train", "valid", "test")
        texts = {part: self.write(f"{part}.txt", english(9000, seed=seed)) for seed, part in enumerate(parts)}
        files = [f"--set=data.{part}={text}" for part, text in texts.items()]
        self.succeed("train", self.config_file, *files, "--set=data.path=", "--out", self.run_folder)
        reads = lambda part: self.succeed("eval", self.run_folder, "--split", part).stderr
        for part in parts:
            self.assertNotIn("warning", reads(part))
        for part in ("valid", "test"):
            texts[part].write_text(english(9000, seed=9))
        self.assertNotIn("warning", reads("train"))
        for part in ("valid", "test"):
            self.assertIn(f"warning: {checkpoints(self.run_folder)[0]}: the text's part '{part}' is not what it was", reads(part))
        self.assertIn("part 'test' is not what it was", self.succeed("inspect", self.run_folder, "--out", self.folder / "page.html").stderr)
        self.assertNotIn("warning", self.succeed("eval", self.run_folder, "--data", texts["test"], "--split", "all").stderr)

    def test_other_unknown_words_are_another_text(self):
        """They have the ids of those before: bits per byte tell."""
        files = {part: self.write(f"{part}.txt", english(3000, seed=i)) for i, part in enumerate(("train", "valid", "test"))}
        words = ["data.path=", "data.unit=word", "data.min_count=3", *[f"data.{part}={file}" for part, file in files.items()]]
        arguments = ("train", self.config_file, *[word for value in words for word in ("--set", value)], "--out", self.folder / "words")
        self.succeed(*arguments)
        self.succeed(*arguments, "--resume")
        for part, says in (("test", "is to be tested on another text"), ("train", "was trained on another text")):
            files[part].write_text(files[part].read_text().replace(" ", "  ", 5))
            self.refuse(*arguments, "--resume", says=says)
            self.assertIn(f"part '{part}' is not what it was", self.succeed("eval", self.folder / "words", "--split", part).stderr)

    def test_a_text_in_place_of_three(self):
        text = self.write("a.txt", english(9000))
        none = ("--set", "data.path=", "--set", f"data.train={self.folder}/none.txt", "--set", f"data.valid={self.folder}/none.txt")
        self.refuse("train", self.config_file, *none, "--out", self.run_folder, says=["none.txt", "name a text with --data FILE"])
        self.succeed("train", self.config_file, *none, "--data", text, "--out", self.run_folder)

    def test_tuned_with_another_optimiser(self):
        tuned = ("--set", f"train.from={shared / 'run'}", "--set", "optimiser.name=rmsprop", "--out", self.run_folder)
        self.refuse("train", self.config_file, *tuned, says=['optimiser.name is "rmsprop"', 'this run has "adam"', "give the same"])
        other = (*tuned[:3], "forgetting.method=selective_attention", *tuned[4:])
        self.refuse("train", self.config_file, *other, says=["train.from is of a run with", "selective_attention"])
        done = self.succeed("train", self.config_file, "--out", self.run_folder)
        self.assertNotIn("train.from", done.stderr)
        same = self.succeed("train", self.config_file, *tuned[:2], "--out", self.folder / "tuned")
        self.assertNotIn("was trained with", same.stderr)
        changed = ("--set", "model.activation=gelu", "--set", "model.dropout=0.5", "--out", self.folder / "changed")
        done = self.succeed("train", self.config_file, *tuned[:2], *changed)
        self.assertRegex(done.stderr, r'lapse: note: .*run.* was trained with model.activation = "relu", not "gelu"; model.dropout = 0.0, not 0.5\n')
        on = self.succeed("train", self.config_file, "--out", self.folder / "tuned", "--resume")
        self.assertNotIn("train.from", on.stderr)  # nothing was asked for
        again = self.succeed("train", self.config_file, *tuned[:2], "--out", self.run_folder, "--resume")
        self.assertIn("note: train.from has no effect", again.stderr)


class Lock(RunFolder):
    def test_one_writer(self):
        process = self.start_long_run()
        says = [str(self.run_folder), f"process {process.pid}", "another folder"]
        for resume in ([], ["--resume"]):
            self.refuse("train", self.config_file, "--out", self.run_folder, *resume, says=says)
        self.succeed("info", self.run_folder)  # reading is free
        process.send_signal(signal.SIGINT)
        process.communicate()
        self.assertFalse((self.run_folder / "lock").exists())
        self.assertEqual(metrics(self.run_folder)[0]["update"], 5)

    def test_a_file_of_ones_own_named_lock(self):
        self.run_folder.mkdir()
        (self.run_folder / "lock").write_text("precious\n")
        self.refuse("train", self.config_file, "--out", self.run_folder, says=["lock", "lapse did not write this one"])
        self.assertEqual((self.run_folder / "lock").read_text(), "precious\n")

    def test_a_limit_of_sizes(self):
        """`ulimit -f`: a write that fails is one line, as on a full disk, and nothing half written stays."""
        self.copy()
        before = self.content()
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        page = self.folder / "page.html"
        for arguments in (("inspect", self.run_folder, "--out", page), ("train", self.config_file, "--out", self.run_folder, "--resume", "--set=train.updates=30")):
            done = lapse(*arguments, preexec_fn=limit)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("File too large", done.stderr.splitlines()[-1])
        self.assertFalse(page.exists() or list(self.folder.glob("*.partial")))
        self.assertEqual([path for path in self.content().keys() - before.keys() if path.parent.name != "tensorboard"], [])
        self.succeed("eval", self.run_folder)

    def test_a_killed_writer_frees_the_folder(self):
        process = self.start_long_run()
        process.kill()
        process.communicate()
        self.assertTrue((self.run_folder / "lock").exists())
        self.succeed("train", self.config_file, "--out", self.run_folder, "--resume")
        self.assertEqual(metrics(self.run_folder)[-1]["update"], 20)

    def test_prune_writes_too(self):
        self.config_file = shared / "selective.toml"
        process = self.start_long_run()
        self.refuse("prune", self.run_folder, "--tokens", 2000, says=[f"process {process.pid}"])
        newest = checkpoints(self.run_folder)[-1]
        self.refuse("prune", newest, "--tokens", 2000, says=[f"process {process.pid}"])

    def test_nothing_is_left_of_what_was_refused(self):
        out = self.folder / "a" / "b"
        self.refuse("train", self.config_file, "--out", out, "--set=data.path=/nowhere/text", says="/nowhere/text")
        self.assertFalse((self.folder / "a").exists())

    def test_what_an_interrupted_save_left_goes(self):
        self.copy()
        left = [
            self.run_folder / "checkpoints" / "update-00000030.safetensors.partial",
            self.run_folder / "metrics.jsonl.partial",
        ]
        others = [self.run_folder / "film.mkv.partial", self.run_folder / "model.safetensors.partial"]
        for path in (*left, *others):
            path.write_text("half")
        self.succeed("train", self.config_file, "--out", self.run_folder, "--resume")
        self.assertFalse(any(path.exists() for path in left))
        self.assertTrue(all(path.exists() for path in others), "what no run writes is not ours to remove")


class PruneRounds(RunFolder):
    """Rounds of an interrupted search are taken up only by the same search of the same weights and text."""

    def prune(self, run, *arguments):
        return self.succeed_json("prune", run, "--tokens", 2000, *arguments)

    def refuse_rounds(self, change):
        """`change` alters what an interrupted search has written."""
        file = self.run_folder / "prune.json"
        content = json.loads(file.read_text())
        change(content)
        file.write_text(json.dumps(content))
        self.refuse("prune", self.run_folder, "--tokens", 2000, says=[str(file), "delete it"])

    def test_another_model(self):
        self.copy("two")
        expected = self.prune(self.run_folder)
        shutil.rmtree(self.run_folder)
        self.copy("two")
        self.prune(shared / "one")
        shutil.copy(shared / "one" / "prune.json", self.run_folder)  # the checkpoints' names are the same
        self.assertEqual(self.prune(self.run_folder)["rounds"], expected["rounds"])
        self.assertNotEqual(self.prune(shared / "one")["rounds"], expected["rounds"])

    def test_another_text(self):
        self.copy("one")
        text = self.write("text.txt", english(20000, seed=3))
        first = self.prune(self.run_folder, "--data", text)
        text.write_text(english(20000, seed=4))
        second = self.prune(self.run_folder, "--data", text)
        self.assertNotEqual(first["rounds"], second["rounds"])

    def test_what_no_search_writes(self):
        self.copy("one")
        self.prune(self.run_folder)
        whole = (self.run_folder / "prune.json").read_text()
        changes = {
            "no budgets": lambda json: json["rounds"][-1].update(budgets=[]),
            "a budget of 0": lambda json: json["rounds"][-1].update(budgets=[64, 0]),
            "a negative budget": lambda json: json["rounds"][-1].update(budgets=[64, -8]),
            "a huge budget": lambda json: json["rounds"][-1].update(budgets=[64, 1 << 40]),
            "one layer too many": lambda json: json["rounds"][-1].update(budgets=[64, 64, 64]),
            "a loss that is none": lambda json: json["rounds"][0].update(loss=float("nan")),
            "an infinite loss": lambda json: json["rounds"][0].update(loss=1e999),
            "a negative loss": lambda json: json["rounds"][0].update(loss=-1),
            "a broken budget": lambda json: json["rounds"][-1].update(budgets=[8.5, 8]),
            "no first round": lambda json: json.update(rounds=json["rounds"][1:]),
            "another order": lambda json: json["rounds"].reverse(),
            "a round left out": lambda json: json["rounds"].pop(1),
            "a loss of text": lambda json: json["rounds"][0].update(loss="low"),
            "rounds that are none": lambda json: json.update(rounds=[1, 2]),
        }
        for name, change in changes.items():
            with self.subTest(name):
                (self.run_folder / "prune.json").write_text(whole)
                self.refuse_rounds(change)

    def test_a_method_without_budgets(self):
        self.refuse("prune", shared / "run", says=["has no budgets", "methods that have them: ", "selective_attention"])


class OtherMachines(RunFolder):
    def test_a_processor_without_bfloat16(self):
        """What was trained in bf16 elsewhere is read here."""
        narrow = {**environment(), "ATEN_CPU_CAPABILITY": "avx2"}
        done = lapse("train", self.config_file, "--out", self.run_folder, "--set=train.precision=bf16", env=narrow)
        self.assertEqual(done.returncode, 1)
        self.assertIn("train.precision", done.stderr)
        wide = lapse("train", self.config_file, "--out", self.run_folder, "--set=train.precision=bf16")
        if "needs a processor" in wide.stderr:
            self.skipTest("this processor does not multiply bfloat16, so that there is no such run to read")
        self.assertEqual(wide.returncode, 0, wide.stderr)
        self.succeed("eval", self.run_folder, env=narrow)
        self.succeed("generate", self.run_folder, "--tokens", 5, "--json", env=narrow)


if __name__ == "__main__":
    unittest.main()
