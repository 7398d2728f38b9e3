"""`lapse plot` of files: those that are not whole, and files that differ in what was read. They are made here, so that a test
says all that is in them."""

import contextlib
import copy
import io
import json
import os
import re
import sys
import unittest
import xml.etree.ElementTree

from program import ROOT, ProgramTest

MATRIX = {
    "matrix": "masking",
    "run": "a",
    "method": "selective_attention",
    "split": "test",
    "text": "0000aaaa",
    "unit": "byte",
    "options": {"precision": "float32", "block": 2},
    "config": {"data": {"path": "/data/text.txt", "documents": "lines"}},
    "documents": 40,
    "counts": [40, 40],
    "tokens": [],
    "layers": [{"layer": 0, "heads": [[[0], [0, 1.5]]]}],
}
OLD = {key: MATRIX[key] for key in ("matrix", "run", "documents", "counts", "tokens", "layers")}

SETTINGS = {"run": "a.safetensors", "checkpoint": 1, "split": "train", "data": "", "text": 7, "tokens": 100, "streams": 2, "context": 16, "step": 8}
SEARCH = {
    "settings": SETTINGS,
    "threshold": 2.5,
    "total": 16,
    "chosen_on": {"split": "train", "loss_full": 2.4, "loss": 2.5},
    "measured_on": {"split": "test", "text": 8, "loss_full": 2.6, "loss": 2.7},
    "rounds": [{"budgets": [16, 16], "total": 32, "loss": 2.4}, {"budgets": [8, 8], "total": 16, "loss": 2.5}],
}


def setUpModule():
    os.environ["LAPSE_PYTHON"] = sys.executable


def changed(found, **changes):
    return {**copy.deepcopy(found), **changes}


class Files(ProgramTest):
    def file(self, name, content):
        return self.write(name, content if isinstance(content, str) else json.dumps(content))

    def plot(self, *contents, options=()):
        """The picture of files that are called a, b, ..."""
        files = [self.file(f"{name}.json", content) for name, content in zip("abc", contents)]
        self.succeed("plot", *files, *options, "-o", self.folder / "picture.svg")
        return (self.folder / "picture.svg").read_text()

    def refused(self, says, *contents):
        files = [self.file(f"{name}.json", content) for name, content in zip("abc", contents)]
        self.refuse("plot", *files, "-o", self.folder / "picture.svg", says=says, status=1)

    def refused_by(self, script, says, *contents):
        """The same within this process: one of its own takes a second for each of many files."""
        files = [self.file(f"{name}.json", content) for name, content in zip("abc", contents)]
        inputs = [[path.stem, str(path)] for path in files]
        settings = {"inputs": inputs, "x": "updates", "metric": "", "title": "", "smooth": 0, "out": str(self.folder / "picture.svg")}
        source = "".join((ROOT / "lapse" / "cli" / name).read_text() for name in ("plot.py", script))
        path, argv, errors = sys.path, sys.argv, io.StringIO()
        try:
            sys.argv = ["plot", json.dumps(settings)]
            with contextlib.redirect_stderr(errors), self.assertRaises(SystemExit):
                exec(compile(source, script, "exec"), {})
        finally:
            sys.path, sys.argv = path, argv
        self.assertEqual(errors.getvalue().count("\n"), 1)
        self.assertIn(says, errors.getvalue())


class Drawn(Files):
    def test_control_characters_are_drawn_as_circles(self):
        """No XML may have them."""
        one = changed(MATRIX, tokens=["\x00", "\x1b\x0c"])
        svg = self.plot(one, changed(one, text="0000bbbb", config={"data": {"path": "/data/a\x07b.txt"}}), options=("--title", "a\x07b\nc"))
        xml.etree.ElementTree.fromstring(svg)
        for text, count in (("◌", 4), ("◌◌", 4), ("a◌b c", 1), ("text a◌b.txt", 1)):
            self.assertEqual(svg.count(f">{text}<"), count, text)

    def test_files_of_equal_names_in_folders_of_equal_names(self):
        lines = "".join(json.dumps({"at": i, "token": "a", "nats": 1.5, "memory": [2]}) + "\n" for i in range(8))
        paths = []
        for folder in ("one", "two"):
            (self.folder / folder / "a").mkdir(parents=True)
            paths.append(self.folder / folder / "a" / "losses.jsonl")
            paths[-1].write_text(lines)
        self.succeed("plot", *paths, "-o", self.folder / "picture.svg")
        svg = (self.folder / "picture.svg").read_text()
        self.assertTrue(all(re.search(f">[^<]*{folder}/a/losses.jsonl<", svg) for folder in ("one", "two")), svg[-3000:])

    def test_marks_of_a_search_are_explained_whole(self):
        svg = self.plot(SEARCH)
        # A mark of either kind in the curve's colour, and grey ones in the legend.
        self.assertEqual([len(re.findall(rf"<use [^>]*{colour}", svg)) for colour in ("#1f77b4", "#808080")], [2, 2])
        for words in ("at the loss to reach", "the same on other text (shifted: equal without budgets)", "a (dotted: the loss to reach)"):
            self.assertIn(f">{words}<", svg)
        unreached = changed(SEARCH, threshold=2.499999)
        svg = self.plot(unreached)
        self.assertNotIn(">at the loss to reach<", svg)
        self.assertNotRegex(svg, "<use [^>]*#1f77b4")


class Matrices(Files):
    def test_a_file_that_is_not_whole(self):
        self.plot(OLD)
        layer = lambda *heads: [{"layer": 0, "heads": [*heads]}]
        lines = [[0], [0, 1.5]]
        of_layers = ([], [{}], [1], {}, layer(), layer([]), layer([[1], [1]]), layer([[1, 1]]), layer([[0], [0, "1"]]), layer([[0], [0, True]]),
                     layer([[0], [0, None]]), layer([[0], [0, float("nan")]]), layer([[0], [0, 10**400]]), layer([[0], 1]), layer(lines, [[0]]),
                     layer(lines) + layer(lines, lines), [{"layer": [], "heads": [lines]}], [{"heads": [lines]}])  # fmt: skip
        altered = [changed(OLD, layers=layers) for layers in of_layers]
        altered += [changed(OLD, **{key: value}) for key, value in (("matrix", ["x"]), ("tokens", 3), ("tokens", [1, 2]), ("tokens", ["a"] * 3))]
        altered += [changed(OLD, documents="40"), changed(MATRIX, options=3), changed(MATRIX, config={}), changed(MATRIX, config={"data": {}})]
        altered += [{key: value for key, value in OLD.items() if key != name} for name in ("tokens", "layers", "documents")]
        for content in altered:
            with self.subTest(json.dumps(content)):
                self.refused_by("plot_matrix.py", "a.json: not a whole file of `lapse inspect --matrix`", content)
        self.refused("a.json: not a whole file of `lapse inspect --matrix`", changed(OLD, layers=layer([[1], [1]])))

    def test_what_was_read_is_said_where_files_differ(self):
        said = ("split [a-z]+", "text [a-z.]+", "checksum [0-9a-f]+", "min_fill \\S+", "documents \\S+", "documents by [a-z]+")
        said += ("block \\d+", "budget [a-z0-9 ]+")
        differ = lambda *contents: [
            text for text in re.findall(r">([^<>]+)</text>", self.plot(*contents)) if any(re.fullmatch(one, text) for one in said)
        ]
        options = lambda **more: changed(MATRIX, text="0000bbbb", options={**MATRIX["options"], **more})
        self.assertEqual(differ(MATRIX), [])
        self.assertEqual(differ(MATRIX, MATRIX), [])
        self.assertEqual(differ(MATRIX, changed(MATRIX, documents=41)), ["documents 40", "documents 41"])
        self.assertEqual(differ(MATRIX, changed(MATRIX, split="valid", text="0000bbbb")), ["split test", "split valid"])
        self.assertEqual(differ(MATRIX, options(min_fill=1.0)), ["min_fill 0", "min_fill 1"])
        self.assertEqual(differ(MATRIX, options(data="/data/other.txt")), ["text text.txt", "text other.txt"])
        self.assertEqual(differ(MATRIX, options(data_documents="whole")), ["documents by lines", "documents by whole"])
        self.assertEqual(differ(MATRIX, changed(MATRIX, text="0000bbbb")), ["checksum 0000aaaa", "checksum 0000bbbb"])
        budget = changed(MATRIX, options={**MATRIX["options"], "budget": 8})
        self.assertEqual(differ(MATRIX, budget), ["budget not given", "budget 8"])
        # One text in two places.
        self.assertEqual(differ(MATRIX, changed(MATRIX, options={**MATRIX["options"], "data": "copy.txt"})), [])

    def test_older_files_say_only_how_many_documents(self):
        self.assertNotIn("unknown", self.plot(OLD, MATRIX))
        svg = self.plot(OLD, MATRIX, changed(MATRIX, split="valid", text="0000bbbb"))
        self.assertEqual([svg.count(f">split {split}<") for split in ("unknown", "test", "valid")], [1, 1, 1])
        self.assertIn(">documents 4<", self.plot(OLD, changed(OLD, documents=4)))

    def test_tasks(self):
        task = {key: value for key, value in MATRIX.items() if key not in ("text", "unit")} | {"task": "copy"}
        short, long = ({**task, "config": {"data": {"task": "copy"}, "copy": {"longest": n}}} for n in (4, 5))
        svg = self.plot(short, long)
        self.assertTrue(">copy.longest 4<" in svg and ">copy.longest 5<" in svg)
        svg = self.plot(short, MATRIX)
        self.assertTrue(">text of the task copy<" in svg and ">text text.txt<" in svg)


class Losses(Files):
    def test_a_result_of_an_evaluation(self):
        """It is printed in several lines, and some of them are JSON by themselves."""
        result = {"loss": 2.5, "config": {"data": {"split": [0.9, 0.05, 0.05]}, "none": [{}]}, "layers": [{"memory_mean": 3.0}]}
        says = "a.json: neither a run's folder nor a file of `lapse eval --losses`"
        self.refused_by("plot_losses.py", says, json.dumps(result, indent=2))
        self.refused("results of `lapse eval --json` are for --against memory", json.dumps(result, indent=2))
        self.refused_by("plot_losses.py", " is no JSON", json.dumps(result, indent=2)[1:])


class Budgets(Files):
    def test_searches_on_one_text(self):
        elsewhere = changed(SEARCH, settings={**SETTINGS, "data": "copy.txt", "split": "all", "context": 32})
        self.plot(SEARCH, elsewhere)
        unfinished = {"settings": SETTINGS, "rounds": SEARCH["rounds"]}
        self.plot(SEARCH, unfinished)
        old = changed(SEARCH, measured_on={key: value for key, value in SEARCH["measured_on"].items() if key != "text"})
        self.plot(SEARCH, old)

    def test_searches_on_different_texts(self):
        told = "budgets were chosen on different texts: "
        of = lambda **changes: changed(SEARCH, settings={key: value for key, value in {**SETTINGS, **changes}.items() if value is not None})
        self.refused_by("plot_budgets.py", told, SEARCH, of(text=9, split="valid"))
        self.refused("on split train, data o.txt, min_fill 0.9, tokens 100, checksum 00000009", SEARCH, of(text=9, data="o.txt", min_fill=0.9))
        self.refused_by("plot_budgets.py", told, SEARCH, of(tokens=200))
        self.refused_by("plot_budgets.py", told, SEARCH, SEARCH, of(text=9))
        # Without checksums, what was asked for tells.
        for changes in ({"split": "valid"}, {"data": "o.txt"}, {"min_fill": 0.9}, {"data_documents": "whole"}):
            self.refused_by("plot_budgets.py", told, of(text=None), of(text=None, **changes))
        self.refused_by("plot_budgets.py", "losses were measured on different texts: ", SEARCH, changed(SEARCH, measured_on={**SEARCH["measured_on"], "text": 9}))

    def test_a_file_that_is_not_whole(self):
        for settings in (3, [], None, {"text": "a"}):
            self.refused_by("plot_budgets.py", "a.json: not a whole file of `lapse prune`", changed(SEARCH, settings=settings))


if __name__ == "__main__":
    unittest.main()
