"""Where a configuration's paths are looked for, and that a run is at home in every folder."""

import os
import tomllib
import unittest

from program import ProgramTest, english, lapse, merged, toml, TINY

TEXT = english(19_880)
SHORT = {"train": {"updates": 2, "checkpoint_every": 2}}


class Paths(ProgramTest):
    def setUp(self):
        super().setUp()
        # A folder may be reached by a link; the program prints what the system calls it.
        self.folder = self.folder.resolve()
        for name in ("a", "b"):
            (self.folder / name).mkdir()

    def configure(self, folder, *changes, name="c.toml"):
        (self.folder / folder / name).write_text(toml(merged(TINY, SHORT, *changes)))

    def train(self, config, out, *arguments, cwd):
        return self.succeed("train", config, "--out", self.folder / out, "--quiet", *arguments, cwd=self.folder / cwd)

    def path_of(self, run, key="path", section="data"):
        return tomllib.loads((self.folder / run / "config.toml").read_text())[section][key]

    def test_beside_the_file_first(self):
        self.configure("a", {"data": {"path": "text.txt"}})
        (self.folder / "a" / "text.txt").write_text(TEXT)
        (self.folder / "b" / "text.txt").write_text(english(19_880, seed=2))
        self.train("../a/c.toml", "run", cwd="b")
        self.assertTrue(os.path.samefile(self.path_of("run"), self.folder / "a" / "text.txt"))
        self.assertTrue(os.path.isabs(self.path_of("run")))

    def test_else_in_the_working_directory(self):
        self.configure("a", {"data": {"path": "text.txt"}})
        (self.folder / "b" / "text.txt").write_text(TEXT)
        self.train("../a/c.toml", "run", cwd="b")
        self.assertEqual(self.path_of("run"), str(self.folder / "b" / "text.txt"))

    def test_set_and_data_start_at_the_working_directory(self):
        self.configure("a", {"data": {"path": "none"}})
        (self.folder / "a" / "text.txt").write_text(TEXT)
        (self.folder / "b" / "text.txt").write_text(TEXT)
        for n, arguments in enumerate((["--set", "data.path=text.txt"], ["--data", "text.txt"])):
            self.train("../a/c.toml", f"run{n}", *arguments, cwd="b")
            self.assertEqual(self.path_of(f"run{n}"), str(self.folder / "b" / "text.txt"))

    def test_data_is_taken_as_it_stands_and_goes_before_set(self):
        self.configure("a", {"data": {"path": "none"}})
        for name in ('"quoted".txt', " blank "):
            (self.folder / "a" / name).write_text(TEXT)
            self.train("c.toml", f"run {name}", "--data", name, "--set", "data.path=other", cwd="a")
            self.assertEqual(self.path_of(f"run {name}"), str(self.folder / "a" / name))

    def test_every_path_of_a_run(self):
        """Three texts, a tokenizer and a run to go on from, all relative to the file."""
        home = self.folder / "a"
        for part in ("train", "valid", "test"):
            (home / part).write_text(TEXT)
        self.succeed("tokenizer", "train", "--data", "train", "--vocabulary", 320, "--out", "m", "--quiet", cwd=home)
        data = {"train": "train", "valid": "valid", "test": "test", "unit": "subword", "tokenizer": "m"}
        self.configure("a", {"data": data})
        self.train("a/c.toml", "a/first", cwd=".")
        self.configure("a", {"data": data, "train": {"from": "first"}}, name="tuned.toml")
        self.train("../a/tuned.toml", "tuned", cwd="b")
        for key in ("train", "valid", "test", "tokenizer"):
            self.assertTrue(os.path.samefile(self.path_of("tuned", key), home / data[key]), key)
        self.assertTrue(os.path.samefile(self.path_of("tuned", "from", "train"), home / "first"))

    def test_a_run_is_evaluated_and_resumed_from_any_folder(self):
        self.configure("a", {"data": {"path": "text.txt"}})
        (self.folder / "a" / "text.txt").write_text(TEXT)
        self.train("c.toml", "run", cwd="a")
        self.succeed("eval", self.folder / "run", "--json", cwd=self.folder / "b")
        self.train("../a/c.toml", "run", "--resume", "--set", "train.updates=4", cwd="b")
        self.train("../run/config.toml", "again", cwd="b")

    def test_a_missing_text_says_where_and_what_to_do(self):
        self.configure("a", {"data": {"path": "text.txt"}})
        here = self.folder / "b"
        done = lapse("train", "../a/c.toml", "--out", "run", cwd=here)
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (1, 1), done.stderr)
        for words in (str(here / "text.txt"), "--data FILE", "scripts/data.sh", "beside it"):
            self.assertIn(words, done.stderr)
        self.assertFalse((here / "run").exists())
        done = lapse("tokenizer", "train", "--data", "text.txt", "--out", "m", cwd=here)
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (1, 1), done.stderr)
        self.assertIn(f"'{here / 'text.txt'}': No such file; name a text with --data FILE", done.stderr)

    def test_a_text_that_is_gone(self):
        self.configure("a", {"data": {"path": "text.txt"}})
        text = self.folder / "a" / "text.txt"
        text.write_text(TEXT)
        self.train("c.toml", "run", cwd="a")
        text.unlink()
        self.refuse("eval", self.folder / "run", says=[str(text), "--data FILE"])
        self.refuse("eval", self.folder / "run", "--data", self.folder / "gone", says=[str(self.folder / "gone"), "--data"])

    def test_no_text_at_all(self):
        self.configure("a")
        self.refuse("train", self.folder / "a" / "c.toml", "--out", self.folder / "run", says=["no training text", "--data"])
        self.assertIn("looked for beside it", " ".join(self.succeed("train", "--help", "data").stdout.split()))


if __name__ == "__main__":
    unittest.main()
