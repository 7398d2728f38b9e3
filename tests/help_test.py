"""The help, the version, and what the program says of a command line that lacks something."""

import os
import pathlib
import re
import subprocess
import tomllib
import unittest

from program import PROGRAM, ROOT, ProgramTest, english, lapse

VERBS = "train prune tokenizer eval generate info inspect serve play task plot import export golden help completion".split()
COMMANDS = [(verb,) for verb in VERBS] + [("tokenizer", "train"), ("task", "show")]


def listed_keys(text):
    """{section: keys} of the help on sections."""
    listed, section = {}, None
    for line in text.splitlines():
        if line.startswith("["):
            section = listed.setdefault(line[1 : line.index("]")], [])
        elif section is not None and line.split()[1:2] == ["="]:
            section.append(line.split()[0])
    return listed


class Version(ProgramTest):
    def test_version(self):
        lines = self.succeed("--version").stdout.splitlines()
        project = re.search(r"project\(Lapse VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]
        first = re.fullmatch(r"lapse (\S+) \(commit (\S+)\)", lines[0])
        self.assertEqual(first[1], project)
        self.assertRegex(first[2], r"^([0-9a-f]{10,40}(\+changes)?|unknown)$")
        self.assertRegex(lines[1], r"^torch \d+\.\d+\.\d+\S*, instruction set \w+")
        self.assertEqual(len(lines), 2)

    def test_the_instruction_set_is_the_one_in_use(self):
        fewer = self.succeed("--version", env={**os.environ, "ATEN_CPU_CAPABILITY": "default"}).stdout
        self.assertRegex(fewer, r"instruction set (DEFAULT|NO AVX)")

    def commit(self, source):
        """What cmake/Commit.cmake finds for a checkout, and whether a second run leaves the file as it is."""
        out = self.folder / "commit.inc"
        command = ["cmake", f"-DSOURCE={source}", f"-DOUT={out}", "-P", ROOT / "cmake" / "Commit.cmake"]
        subprocess.run(command, check=True)
        first = out.stat().st_mtime_ns
        subprocess.run(command, check=True)
        self.assertEqual(out.stat().st_mtime_ns, first, "written anew: the program would be compiled again")
        return out.read_text()

    def test_commit(self):
        checkout = self.folder / "checkout"
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "init", "-q", checkout], check=True)
        (checkout / "file").write_text("one")
        subprocess.run(["git", "-C", checkout, "add", "file"], check=True)
        subprocess.run(["git", "-C", checkout, *identity, "commit", "-qm", "a"], check=True)
        head = subprocess.run(["git", "-C", checkout, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True)
        commit = head.stdout.strip()
        self.assertEqual(self.commit(checkout), f'"{commit}"\n')
        (checkout / "file").write_text("two")
        self.assertEqual(self.commit(checkout), f'"{commit}+changes"\n')
        within = checkout / "unpacked"  # a release unpacked within another project's checkout
        within.mkdir()
        self.assertEqual(self.commit(within), '"unknown"\n')


class Help(ProgramTest):
    def test_alone(self):
        done = self.succeed()
        self.assertEqual(done.stderr, "")
        for other in (("--help",), ("-h",), ("help",)):
            self.assertEqual(self.succeed(*other).stdout, done.stdout)
        groups = ["Begin:", "Train:", "Read and write:", "Look:", "Check:", "More:"]
        self.assertEqual([line for line in done.stdout.splitlines() if line in groups], groups)
        listed = re.findall(r"^  ([a-z]+)  +[A-Z]", done.stdout, re.M)
        self.assertEqual(sorted(listed), sorted(set(listed) | set(VERBS)), "each verb once")
        self.assertIn("\n  lapse train ", done.stdout)
        self.assertLess(len(done.stdout.splitlines()), 47)

    def test_every_verb(self):
        for words in COMMANDS:
            with self.subTest(verb=words):
                text = self.succeed(*words, "--help").stdout
                self.assertIn(f"\nusage: lapse {' '.join(words)} ", text)
                self.assertNotRegex(text, "INT|REQUIRED|Positionals", "the parser's own words")
                for line in text.splitlines():
                    self.assertLessEqual(len(line), 120)

    def test_every_way_to_ask(self):
        for words in (("eval",), ("tokenizer", "train")):
            text = self.succeed(*words, "--help").stdout
            for other in (("help", *words), ("--help", *words), (*words, "--unknown", "-h"), (*words, "run", "--help", "more")):
                self.assertEqual(self.succeed(*other).stdout, text, other)

    def test_limits_and_defaults_are_shown(self):
        text = self.succeed("help", "generate").stdout
        self.assertRegex(text, r"--top-p X +.*\(0 \.\.\. 1; default: 1\)")
        self.assertRegex(text, r"--color auto\|always\|never +.*\(default: auto\)")
        self.assertRegex(self.succeed("help", "tokenizer", "train").stdout, r"--data FILE \.\.\. +.*\(required\)")
        self.assertIn("--max-span", text)

    def test_unknown_verbs(self):
        self.refuse("help", "evil", says=["unknown verb 'evil'", "did you mean 'eval'"])
        self.refuse("--help", "evil", says=["unknown verb 'evil'", "did you mean 'eval'"])
        self.refuse("evil", "--help", says=["unknown verb 'evil'", "did you mean 'eval'"])
        self.refuse("help", "tokenizer", "trian", says=["unknown verb 'trian'", "did you mean 'train'"])
        self.refuse("help", "eval", "more", says=["lapse eval has no verb 'more'"])
        self.refuse("help", "train", "--unknown", says="unknown flag --unknown")


class TrainHelp(ProgramTest):
    def test_short(self):
        text = self.succeed("train", "--help").stdout
        self.assertIn("usage: lapse train CONFIG.toml --out RUN [...]", text)
        self.assertLess(len(text.splitlines()), 65)
        sections = listed_keys(self.succeed("train", "--help", "all").stdout)
        for section in sections:
            self.assertRegex(text, rf"(?m)^  {section} +\S")
        self.assertEqual(listed_keys(text).get("optimiser"), None, "keys are shown for one section at a time")

    def test_the_example_trains(self):
        text = self.succeed("train", "--help").stdout
        example = re.search(r"every other key has a default:\n\n((?:  .*\n)+)", text)[1]
        self.assertEqual(len(example.splitlines()), 6)
        self.write("book.txt", english(6000))
        self.write("book.toml", example)
        small = ["train.updates=2", "train.batch=2", "train.block=16", "model.width=16", "model.heads=2", "model.layers=1"]
        sets = [word for one in small for word in ("--set", one)]
        self.succeed("train", "book.toml", "--out", "run", *sets, cwd=self.folder)
        written = tomllib.loads((self.folder / "run" / "config.toml").read_text())
        self.assertEqual(written["forgetting"], tomllib.loads(example)["forgetting"])

    def test_one_section(self):
        everything = listed_keys(self.succeed("train", "--help", "all").stdout)
        self.assertGreater(len(everything), 15)
        for section in ("data", "expire_span", "optimiser"):
            text = self.succeed("train", "--help", section).stdout
            self.assertEqual(listed_keys(text), {section: everything[section]})
            self.assertEqual(self.succeed("help", "train", section).stdout, text)
            self.assertEqual(self.succeed("train", "a.toml", "--help", section).stdout, text)
        self.refuse("train", "--help", "optimizer", says=["unknown section 'optimizer'", "did you mean 'optimiser'"])
        self.refuse("help", "train", "xyzzyxyzzy", says=["unknown section", "lapse train --help"])


class Missing(ProgramTest):
    """What is missing is said with the usage, in one line."""

    def test_usage(self):
        usages = {
            ("train",): ("CONFIG.toml and --out are required", "lapse train CONFIG.toml --out RUN [...]"),
            ("train", "a.toml"): ("--out is required", "lapse train CONFIG.toml --out RUN [...]"),
            ("train", "a.toml", "--out"): ("--out", "lapse train CONFIG.toml --out RUN [...]"),
            ("eval",): ("RUN is required", "lapse eval RUN [...]"),
            ("info",): ("RUN is required", "lapse info RUN [...]"),
            ("generate", "--tokens", "2"): ("RUN is required", "lapse generate RUN [...]"),
            ("plot",): ("RUN and --out are required", "lapse plot RUN... --out PICTURE [...]"),
            ("golden",): ("FILE is required", "lapse golden FILE... [...]"),
            ("tokenizer",): ("a verb is required", "lapse tokenizer train [...]"),
            ("tokenizer", "train"): ("--data and --out are required", "lapse tokenizer train --data FILE... --out FILE [...]"),
            ("completion",): ("bash|zsh is required", "lapse completion bash|zsh"),
        }
        for words, (what, usage) in usages.items():
            with self.subTest(words=words):
                self.refuse(*words, says=[what, f"; usage: {usage}"], status=2)


if __name__ == "__main__":
    unittest.main()
