"""`lapse init`: the presets of examples/, each of which trains as it stands."""

import os
import re
import tomllib
import unittest

from program import ROOT, ProgramTest, english, lapse

EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.toml"))
SMALL = [name for name in EXAMPLES if not name.startswith("paper-")]
TEXT = english(120_000)


def preset(name):
    return (ROOT / "examples" / f"{name}.toml").read_text()


class Init(ProgramTest):
    def test_alone_it_lists_all_with_their_first_lines(self):
        lines = self.succeed("init").stdout.splitlines()
        for name in EXAMPLES:
            title = preset(name).splitlines()[0]
            self.assertRegex(title, "^# .")
            self.assertLess(len(title), 110, name)
            self.assertEqual(sum(re.fullmatch(rf"  {name} +{re.escape(title[2:])}", line) is not None for line in lines), 1)

    def test_every_trainable_method_has_one(self):
        methods = {tomllib.loads(preset(name))["forgetting"]["method"] for name in SMALL}
        wanted = "expire_span fixed_span adaptive_span compressive selective_attention local local_global strided"
        self.assertLessEqual(set(wanted.split()), methods)

    def test_a_name_prints_the_file_as_it_is(self):
        for name in EXAMPLES:
            self.assertEqual(self.succeed("init", name).stdout, preset(name))

    def test_into_a_file_that_is_new(self):
        out = self.folder / "my.toml"
        self.succeed("init", "copy", "-o", out)
        self.assertEqual(out.read_text(), preset("copy"))
        self.refuse("init", "parity", "-o", out, says=[str(out), "exists"])
        self.assertEqual(out.read_text(), preset("copy"))
        self.refuse("init", "copy", "-o", self.folder, says="is a folder")
        self.refuse("init", "copy", "-o", self.folder / "none" / "my.toml", says="there is no folder")

    def test_data_fills_in_the_path(self):
        (self.folder / 'a "text".txt').write_text(TEXT)
        done = self.succeed("init", "local", "--data", 'a "text".txt', cwd=self.folder)
        config = tomllib.loads(done.stdout)
        self.assertEqual(config["data"]["path"], str(self.folder / 'a "text".txt'))
        self.assertEqual(config | {"data": {}}, tomllib.loads(preset("local")) | {"data": {}})
        self.assertNotIn("data.sh", done.stdout)  # which told where the preset's own text comes from
        self.refuse("init", "copy", "--data", "text.txt", says=["'copy'", "leave out --data"])
        self.refuse("init", "--data", "text.txt", says="which preset")
        self.refuse("init", "demo", "--data", os.fsdecode(b"\xff.txt"), says="--data: the name")

    def test_data_takes_the_place_of_three_files(self):
        for name in EXAMPLES:
            data = tomllib.loads(preset(name))["data"]
            if "train" not in data:
                continue
            made = tomllib.loads(self.succeed("init", name, "--data", "text.txt", cwd=self.folder).stdout)
            rest = {key: value for key, value in data.items() if key not in ("train", "valid", "test")}
            self.assertEqual(made, tomllib.loads(preset(name)) | {"data": {"path": str(self.folder / "text.txt")} | rest})

    def test_values_are_written_into_it(self):
        sets = ("--set", "train.batch=8", "--set", "long_copy.gap=2000", "--set", "train.seed=3", "--set", 'selective_attention.budgets=[1, 2]')
        text = self.succeed("init", "long_copy", *sets).stdout
        expected = tomllib.loads(preset("long_copy"))
        expected["train"] |= {"batch": 8, "seed": 3}
        expected["long_copy"]["gap"] = 2000
        expected["selective_attention"] = {"budgets": [1, 2]}
        self.assertEqual(tomllib.loads(text), expected)
        self.assertIn("gap = 2000                 # T\n", text)
        self.assertEqual([line for line in text.splitlines() if line.startswith("#")], [line for line in preset("long_copy").splitlines() if line.startswith("#")])
        self.assertEqual(tomllib.loads(self.succeed("init", "copy", "--set", " train . batch = 8 ").stdout)["train"]["batch"], 8)
        self.refuse("init", "copy", "--set", "train.bach=3", says="did you mean 'batch'")
        self.refuse("init", "copy", "--set", "train.batch=x", says="train.batch")
        self.refuse("init", "--set", "train.batch=3", says="which preset")
        path = self.succeed("init", "demo", "--set", "data.path=some.txt", cwd=self.folder).stdout
        self.assertEqual(tomllib.loads(path)["data"]["path"], str(self.folder / "some.txt"))

    def test_unknown_names(self):
        self.refuse("init", "expire_spam", says="did you mean 'expire_span'")
        self.refuse("init", "xyzzyxyzzy", says="`lapse init` lists them")


class Presets(ProgramTest):
    def test_each_small_one_trains(self):
        text = self.write("text.txt", TEXT)
        tokenizer = self.folder / "pieces.model"
        self.succeed("tokenizer", "train", "--data", text, "--vocabulary", 320, "--out", tokenizer, "--quiet")
        for name in SMALL:
            with self.subTest(preset=name):
                config = self.folder / f"{name}.toml"
                reads = "path" in tomllib.loads(preset(name))["data"]
                self.succeed("init", name, "-o", config, *(["--data", text] if reads else []))
                less = ["train.updates=2", "train.validation_blocks=3", "train.log_every=1"]
                less += [f"data.tokenizer={tokenizer}"] if "tokenizer" in tomllib.loads(preset(name))["data"] else []
                if "train" in tomllib.loads(preset(name))["data"]:  # three files; this text has few words
                    less += [f"data.{part}={text}" for part in ("train", "valid", "test")] + ["adaptive.cutoffs=[4, 9]"]
                sets = [word for field in less for word in ("--set", field)]
                self.succeed("train", config, "--out", self.folder / name, "--quiet", *sets)

    def test_what_is_missing_is_named(self):
        """The presets look for data/jargon.txt, which scripts/data.sh puts there."""
        config = ROOT / "examples" / "expire_span.toml"
        done = lapse("train", config, "--out", self.folder / "run", cwd=self.folder)
        self.assertEqual(done.returncode, 1)
        if (ROOT / "examples" / "data").exists():
            self.skipTest("examples/data exists")
        self.assertEqual(len(done.stderr.splitlines()), 1)
        for words in (str(self.folder / "data" / "jargon.txt"), "--data FILE", "scripts/data.sh"):
            self.assertIn(words, done.stderr)


if __name__ == "__main__":
    unittest.main()
