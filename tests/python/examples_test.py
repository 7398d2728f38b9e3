"""examples/python as users run them, briefly."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import program  # noqa: E402


def example(name, *arguments):
    command = [sys.executable, "-B", str(ROOT / "examples" / "python" / name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


class Examples(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.text = self.folder / "text.txt"
        self.text.write_text(program.english(60000))

    def run_example(self, *arguments):
        done = example(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_training_on_a_text(self):
        out = self.run_example("train_text.py", self.text, "--updates", 25)
        bits = [float(x) for x in re.findall(r": ([\d.]+) bits per byte", out)]
        self.assertLess(bits[-1], bits[0] / 2)
        self.assertRegex(out, r"still remembered: [^~]{300}\n")
        for rows in re.findall(r"layer \d: (\d+) of 300 rows", out):
            self.assertLess(int(rows), 300)

    def test_fine_tuning(self):
        out = self.run_example(
            "finetune_llama.py", self.text, "--updates", 3, "--method", "expire_span", "--out", self.folder / "model"
        )
        rows = re.search(r"what has not expired: loss [\d.]+, (\d+) of 128 rows", out)
        self.assertLess(int(rows.group(1)), 100)  # spans begin at 0.9 x 64, with a ramp of 16
        self.assertTrue((self.folder / "model" / "model.safetensors").exists())

    def test_generating(self):
        out = self.run_example("generate.py", "--budget", 32, "--tokens", 8)
        self.assertEqual(re.findall(r"(\d+) rows a layer", out), ["31", "31", "175", "31", "31"])

    def test_what_is_too_small_is_named(self):
        self.text.write_text("a" * 100)
        for arguments in (["train_text.py", self.text], ["finetune_llama.py", self.text], ["generate.py", "--budget", 4]):
            done = example(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertRegex(done.stderr, r"error: .*at least \d+")

    def test_they_are_short(self):
        for file in (ROOT / "examples" / "python").glob("*.py"):
            self.assertLessEqual(len(file.read_text().splitlines()), 80, file.name)


if __name__ == "__main__":
    unittest.main()
