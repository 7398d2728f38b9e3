"""`lapse inspect --matrix` as a process, and its pictures."""

import json
import os
import re
import sys
import unittest

from program import TINY, ProgramTest, english, lapse, merged, shared_folder, train_run

WINDOWS = {"data": {"path": "text.txt", "windows": True}, "train": {"block": 16}}
SELECTIVE = {"forgetting": {"method": "selective_attention"}, "selective_attention": {"max_span": 16}}

shared = None


def setUpModule():
    global shared
    shared = shared_folder()
    (shared / "text.txt").write_text(english(6000))
    os.environ["LAPSE_PYTHON"] = sys.executable
    runs = {
        "selective": merged(TINY, WINDOWS, SELECTIVE),
        "streams": merged(TINY, {"data": {"path": "text.txt"}}),
        "copy": merged(TINY, {"data": {"task": "copy"}, "copy": {"longest": 4, "alphabet": 3}, "train": {"block": 12}}),
        "corridor": merged(TINY, {"data": {"task": "corridor"}, "actor_critic": {"validation_episodes": 5}}),
    }
    for name, config in runs.items():
        train_run(shared / name, merged(config, {"train": {"updates": 2}}))


class Matrix(ProgramTest):
    def matrix(self, run, *arguments):
        out = self.folder / f"{run}.json"
        self.succeed("inspect", shared / run, "--matrix", *arguments, "-o", out)
        return json.loads(out.read_text())

    def test_one_text(self):
        found = self.matrix("selective", "attention")
        self.assertEqual((found["matrix"], found["documents"], len(found["tokens"])), ("attention", 1, 16))
        self.assertEqual(found["tokens"][0], "BOS")
        for layer in found["layers"]:
            for lines in layer["heads"]:
                self.assertEqual([len(line) for line in lines], list(range(1, 17)))
                for line in lines:
                    self.assertAlmostEqual(sum(line), 1, places=2)

    def test_what_was_read_is_in_the_file(self):
        """In the words of `lapse eval --json`."""
        text = shared / "text.txt"
        given = ("--data", text, "--split", "test", "--budget", 8)
        for run, how in (("selective", ("--split", "valid")), ("selective", given), ("copy", ("--split", "test"))):
            found = self.matrix(run, "kept", *how)
            read = self.succeed_json("eval", shared / run, *how)
            for key in ("run", "method", "split", "text", "unit", "task", "options", "config"):
                self.assertEqual(found.get(key), read.get(key), key)
        self.assertEqual(self.matrix("streams", "kept", "--tokens", 24)["options"]["block"], 24)

    def test_a_picture_says_what_was_read_where_two_files_differ(self):
        files = []
        for n in (3, 5):
            self.matrix("selective", "masking", "--split", "valid" if n == 3 else "test", "--documents", n)
            files.append((self.folder / "selective.json").rename(self.folder / f"of{n}.json"))
        self.succeed("plot", *files, "-o", self.folder / "picture.svg")
        text = (self.folder / "picture.svg").read_text()
        for words in ("documents 3", "documents 5", "split valid", "split test"):
            self.assertEqual(text.count(f">{words}<"), 2, words)  # a panel for each layer

    def test_means_over_many(self):
        found = self.matrix("selective", "masking", "--documents", "11", "--layer", "1")
        self.assertEqual((found["documents"], found["tokens"], found["counts"]), (11, [], [11] * 16))
        self.assertEqual([layer["layer"] for layer in found["layers"]], [1])
        (lines,) = found["layers"][0]["heads"]
        self.assertTrue(all(line[0] == 0 for line in lines), "BOS is never masked")
        self.assertTrue(all(a <= b for before, line in zip(lines, lines[1:]) for a, b in zip(before, line)), "F grows")

    def test_a_short_text_gives_all_its_blocks(self):
        text = self.write("some.txt", english(130))
        out = self.folder / "some.json"
        done = self.succeed("inspect", shared / "streams", "--data", text, "--split", "all", "--matrix", "kept", "--tokens", 24, "--documents", 5, "-o", out)
        self.assertNotIn("no more than", done.stderr)
        self.assertEqual(json.loads(out.read_text())["documents"], 5)

    def test_bytes_that_are_no_characters_are_named(self):
        text = self.write("some.txt", "é" + english(200))
        out = self.folder / "some.json"
        where = ("--data", text, "--split", "all", "--matrix", "kept", "--tokens", 24)
        self.succeed("inspect", shared / "streams", *where, "-o", out)
        self.assertEqual(json.loads(out.read_text())["tokens"][:2], ["\\xC3", "\\xA9"])

    def test_the_default_file_is_the_one_that_is_checked(self):
        (self.folder / "report.html").mkdir()
        self.assertEqual(self.succeed("inspect", shared / "streams", "--matrix", "kept", cwd=self.folder).stdout, "matrix.json\n")
        (self.folder / "matrix.json").unlink()
        (self.folder / "matrix.json").mkdir()
        done = lapse("inspect", shared / "streams", "--matrix", "kept", cwd=self.folder)
        self.assertEqual((done.returncode, done.stderr), (1, "lapse: error: --out: matrix.json is a folder; name a file\n"))

    def test_kept_rows_of_streams(self):
        found = self.matrix("streams", "kept", "--tokens", "24")
        self.assertEqual(len(found["tokens"]), 24)
        for layer in found["layers"]:
            self.assertTrue(all(line[-1] == 1 for line in layer["heads"][0]))

    def test_pictures(self):
        self.matrix("selective", "masking")
        first = self.folder / "selective.json"
        second = self.folder / "second.json"
        second.write_text(json.dumps(json.loads(first.read_text()), indent=4))  # by another program
        for inputs in ([first], [first, second]):
            picture = self.folder / "picture.svg"
            self.succeed("plot", *inputs, "-o", picture)
            text = picture.read_text()
            self.assertIn("layer 1", text)
            self.assertEqual(text.count("layer 0"), len(inputs))
        attention = self.matrix("selective", "attention")
        self.succeed("plot", first, first, "-o", picture)
        text = picture.read_text()
        heads = len(attention["layers"][0]["heads"])
        self.assertEqual(text.count("head 1"), 2 * len(attention["layers"]))
        width, height = map(float, re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text).groups())
        self.assertAlmostEqual(width / height, heads / (2 * len(attention["layers"])), delta=0.4, msg="a line of panels for each layer of each file")
        self.matrix("selective", "masking")
        self.matrix("streams", "kept")
        self.refuse("plot", first, self.folder / "streams.json", "-o", picture, says="masking and kept", status=1)
        self.refuse("plot", first, "-o", picture, "--smooth", "3", says="--smooth", status=1)
        second.write_text(first.read_text()[:100])
        self.refuse("plot", second, "-o", picture, says="not a whole file", status=1)

    def test_what_it_refuses(self):
        out = ("-o", self.folder / "matrix.json")
        refuse = lambda run, *arguments, says: self.refuse("inspect", shared / run, *arguments, *out, says=says, status=1)
        refuse("streams", "--matrix", "masking", says="the method has no matrix 'masking'")
        refuse("selective", "--matrix", "maskng", says="has no matrix 'maskng' of queries and rows (did you mean 'masking'?)")
        refuse("selective", "--matrix", "kept", "--method", "h2o", "--budget", "4", says="token by token")
        refuse("corridor", "--matrix", "kept", says="corridor")
        refuse("selective", "--matrix", "kept", "--layer", "7", says="the layers 0 to 1")
        refuse("selective", "--layer", "1", says="--layer goes with --matrix")
        refuse("selective", "--matrix", "kept", "--title", "x", says="--title is for the page")
        refuse("streams", "--matrix", "attention", "--tokens", "100000", says="million numbers")
        self.refuse("inspect", shared / "streams", "--matrix", "kpt", *out, says="did you mean 'kept'?")
        self.refuse("inspect", shared / "streams", "--matrix", "", *out, says="--matrix")
        self.assertEqual(list(self.folder.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
