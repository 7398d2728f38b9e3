"""`lapse eval --losses` and `--against`: tokens' losses against what `lapse inspect` reads token by token, and what two
readings differ in against their files."""

import json
import re
import signal
import time
import unittest

from program import TINY, ProgramTest, checkpoints, english, lapse, merged, shared_folder, start, train_run

WINDOWS = {
    "data": {"windows": True},
    "forgetting": {"method": "selective_attention"},
    "selective_attention": {"max_span": 32},
    "model": {"positions": "absolute", "attend_self": True, "norm": "pre"},
    "train": {"block": 32},
}
RUNS = {
    "expire": {},
    "fixed": {"forgetting": {"method": "fixed_span"}},
    "windows": WINDOWS,
    "longer": merged(WINDOWS, {"train": {"block": 40}}),
    "words": {"data": {"unit": "word"}, "forgetting": {"method": "fixed_span"}},
    "copy": {"data": {"task": "copy", "path": ""}, "copy": {"longest": 4, "alphabet": 3}, "train": {"block": 12}},
}
TEXT = "é€ \x07" + english(6000)

shared = None


def setUpModule():
    global shared
    shared = shared_folder()
    (shared / "text.txt").write_text(TEXT)
    (shared / "short.txt").write_text(TEXT[:400])
    for name, changes in RUNS.items():
        train_run(shared / name, merged(TINY, {"data": {"path": "text.txt"}}, changes))


SHORT = ("--data", "short.txt", "--split", "all")


class LossesTest(ProgramTest):
    def eval(self, run, *arguments):
        """The result of an evaluation, and the lines of its file."""
        file = self.folder / "losses.jsonl"
        done = self.succeed("eval", run, *arguments, "--losses", file, "--json", cwd=shared)
        return json.loads(done.stdout), [json.loads(line) for line in file.read_text().splitlines()]


class Losses(LossesTest):
    def test_are_those_that_inspect_finds(self):
        for run, options in (("expire", ()), ("fixed", ("--max-span", 5)), ("windows", ())):
            with self.subTest(run=run):
                _, lines = self.eval(run, *SHORT, *options, "--streams", 1)
                page = self.folder / "page.html"
                self.succeed("inspect", run, *SHORT, *options, "-o", page, cwd=shared)
                data = json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page.read_text())[1])
                self.assertEqual(len(lines), len(data["nats"]))
                text = TEXT[:400].encode()
                self.assertEqual([line["at"] for line in lines], list(range(len(text) - len(lines), len(text))))
                self.assertEqual([line["token"] for line in lines], list(text[-len(lines) :]))
                for i, (line, nats) in enumerate(zip(lines, data["nats"])):
                    self.assertAlmostEqual(line["nats"], nats, delta=1e-3 * max(1, nats))
                    self.assertEqual(line["memory"], [layer["sizes"][i] for layer in data["layers"]])

    def test_of_many_streams_add_up(self):
        plain = json.loads(self.succeed("eval", "expire", "--json", cwd=shared).stdout)
        result, lines = self.eval("expire")
        self.assertEqual(result["method"], "expire_span")
        self.assertEqual(result["loss"], plain["loss"])
        self.assertEqual(len(lines), result["tokens"])
        self.assertGreater(result["streams"], 1)
        self.assertAlmostEqual(sum(line["nats"] for line in lines) / len(lines), result["loss"], places=5)
        for layer, sizes in zip(result["layers"], zip(*(line["memory"] for line in lines))):
            self.assertAlmostEqual(sum(sizes) / len(sizes), layer["memory_mean"])
            self.assertEqual(max(sizes), layer["memory_max"])
        text = TEXT.encode()
        part = text[-(len(lines) + result["streams"]) - 1 :]  # the test part, but for a byte that may be left over
        self.assertEqual(len({line["at"] for line in lines}), len(lines))
        self.assertTrue(any(all(line["token"] == part[line["at"] + shift] for line in lines) for shift in (0, 1)))

    def test_have_their_text(self):
        _, lines = self.eval("expire", *SHORT, "--streams", 1)
        self.assertEqual([line["text"] for line in lines[:6]], ["\\xA9", "\\xE2", "\\x82", "\\xAC", " ", "\x07"])
        _, lines = self.eval("words", *SHORT, "--streams", 1)
        self.assertEqual("".join(line["text"] for line in lines).split()[:-1], TEXT[:400].split()[1:-1])  # the last is cut


class Against(LossesTest):
    def test_a_shorter_span(self):
        whole = json.loads(self.succeed("eval", "expire", *SHORT, "--streams", 1, "--json", cwd=shared).stdout)
        short = json.loads(self.succeed("eval", "expire", *SHORT, "--streams", 1, "--max-span", 2, "--json", cwd=shared).stdout)
        result, lines = self.eval("expire", *SHORT, "--streams", 1, "--max-span", 2, "--against", "expire")
        self.assertEqual(result["loss"], short["loss"])
        self.assertEqual(result["layers"], short["layers"])
        for key in ("run", "method", "loss", "bpb", "layers"):
            self.assertEqual(result["against"][key], whole[key])
        self.assertAlmostEqual(result["mean_difference"], short["loss"] - whole["loss"], places=5)
        self.assertNotEqual(result["mean_difference"], 0)
        for layer, sizes in zip(whole["layers"], zip(*(line["against_memory"] for line in lines))):
            self.assertAlmostEqual(sum(sizes) / len(sizes), layer["memory_mean"])
        size = lambda line: abs(line["nats"] - line["against_nats"])
        largest = result["differences"]
        self.assertEqual(len(largest), 20)
        self.assertEqual([size(one) for one in largest], sorted(map(size, largest), reverse=True))
        at = {one["at"] for one in largest}
        smallest = min(map(size, largest))
        self.assertTrue(all(line["at"] in at or size(line) <= smallest + 1e-4 for line in lines))
        text = TEXT[:400].encode()
        for one in largest:
            if 50 < one["at"] < len(text) - 30:
                around = text[one["at"] - 40 : one["at"] + 21].decode()
                self.assertEqual(one["before"] + one["text"] + one["after"], around)

    def test_the_same_reading_differs_in_nothing(self):
        result, lines = self.eval("fixed", *SHORT, "--against", "fixed")
        self.assertEqual(result["mean_difference"], 0)
        self.assertTrue(all(line["nats"] == line["against_nats"] and line["memory"] == line["against_memory"] for line in lines))

    def test_other_runs_and_words(self):
        result, _ = self.eval("expire", "--against", "fixed")
        self.assertEqual(result["against"]["method"], "fixed_span")
        result, _ = self.eval("windows", *SHORT, "--budget", 8, "--against", "windows")
        self.assertEqual(result["layers"][0]["memory_max"], 8)
        self.assertGreater(result["against"]["layers"][0]["memory_max"], 8)
        done = self.succeed("eval", "words", "--max-span", 1, "--against", "words", cwd=shared)
        self.assertRegex(done.stdout, r"\nagainst .*words/checkpoints/.*\nperplexity +[\d.]+\n")
        self.assertRegex(done.stdout, r"\ndifference +[+-][\d.]+ nats per token\n\n +at +nats +against +difference  text\n")
        listed = re.findall(r"^ +\d+ +[\d.]+ +[\d.]+ +[+-][\d.]+  .*\[\S+ ?\].*$", done.stdout, re.M)
        self.assertEqual(len(listed), 20)

    def test_an_interrupted_reading_leaves_the_file_as_it_was(self):
        file = self.folder / "losses.jsonl"
        file.write_text("of before\n")
        long = self.write("long.txt", english(400000))
        process = start("eval", shared / "expire", "--data", long, "--split", "all", "--streams", 1, "--losses", file)
        partial = lambda: [path for path in self.folder.iterdir() if "partial" in path.name]
        deadline = time.monotonic() + 60
        while not partial() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1)
        self.assertRegex(errors, rf"interrupted: these are the numbers of the part that was read; {file} was not written\n$")
        self.assertEqual(file.read_text(), "of before\n")
        self.assertEqual(partial(), [])

    def test_control_characters_stay_off_the_terminal(self):
        done = self.succeed("eval", "fixed", "--data", self.write("bell.txt", "\x07\x1b[2J\n" * 9), "--split", "all", "--max-span", 1, "--against", "fixed", cwd=shared)
        self.assertNotRegex(done.stdout, "[\x07\x1b]")
        self.assertIn("\\x1B", done.stdout)

    def test_context_ends_with_the_document(self):
        lines = [f"document {i} of few words" for i in range(200)]
        text = self.write("lines.txt", "\n".join(lines) + "\n")
        train_run(self.folder / "lines", merged(TINY, {"data": {"path": str(text), "documents": "lines"}, "train": {"block": 32}}))
        result, _ = self.eval(self.folder / "lines", "--max-span", 1, "--against", self.folder / "lines")
        for found in result["differences"]:
            self.assertIn(found["before"] + found["text"] + found["after"], [line + "\n" for line in lines] + lines)

    def test_what_is_read_is_not_written_over(self):
        for name, text in (("own.txt", TEXT), ("text.txt", TEXT)):  # one that is named, and the run's own
            path = shared / name
            path.write_text(text)
            data = ("--data", path) if name == "own.txt" else ()
            for verb, flag in (("eval", "--losses"), ("inspect", "--out"), ("prune", "--out")):
                run = shared / ("windows" if verb == "prune" else "expire")
                self.refuse(verb, run, *data, flag, path, says=[flag, "would be lost"])
                self.assertEqual(path.read_text(), text)
        self.refuse("tokenizer", "train", "--data", shared / "own.txt", "--out", shared / "own.txt", says="would be lost")

    def test_files_of_a_run_are_not_written_over(self):
        for verb, flag in (("eval", "--losses"), ("inspect", "--out"), ("prune", "--out")):
            run = shared / ("windows" if verb == "prune" else "expire")
            for file in (checkpoints(run)[0], run / "config.toml", run / "metrics.jsonl"):
                before = file.read_bytes()
                self.refuse(verb, run, flag, file, says=[flag, "would be lost"])
                self.assertEqual(file.read_bytes(), before)
            if verb != "prune":  # which writes them
                for name in ("prune.json", "pruned.safetensors"):
                    (run / name).write_text("found in hours")
                    self.refuse(verb, run, flag, run / name, says=[flag, "would be lost"])
                    self.assertEqual((run / name).read_text(), "found in hours")
                    (run / name).unlink()
        other = shared / "fixed" / "metrics.jsonl"
        self.refuse("eval", shared / "expire", "--losses", other, says="would be lost")  # of a run that is not read
        self.refuse("tokenizer", "train", "--data", shared / "text.txt", "--out", checkpoints(shared / "fixed")[0], says="would be lost")
        for run, of_what in ((shared / "expire", "--against"), (shared / "windows", "--standard")):
            verb, flag = ("eval", "--losses") if of_what == "--against" else ("prune", "--out")
            self.refuse(verb, run, of_what, shared / "fixed", flag, checkpoints(shared / "fixed")[0], says=[flag, "would be lost"])

    def test_an_empty_name_is_refused(self):
        windows, expire = shared / "windows", shared / "expire"
        for verb, run, flags in (("eval", expire, ("--data", "--losses", "--against")), ("inspect", expire, ("--data", "--compare", "--out")),
                                 ("prune", windows, ("--data", "--out", "--standard")), ("train", windows / "config.toml", ("--data",))):  # fmt: skip
            for flag in flags:
                rest = ("--out", self.folder / "out") if verb == "train" else ()
                self.refuse(verb, run, *rest, flag, "", says=flag, cwd=self.folder)

    def test_what_it_refuses(self):
        def refused(words, *arguments):
            done = lapse("eval", *arguments, cwd=shared)
            self.assertGreater(done.returncode, 0)
            last = done.stderr.splitlines()[-1]
            self.assertTrue(last.startswith("lapse: error: "), done.stderr)
            self.assertIn(words, last)

        file = self.folder / "losses.jsonl"
        refused("its vocabulary is not that of", "fixed", "--against", "words")
        refused("windows that begin with BOS", "fixed", "--against", "windows")
        refused("its vocabulary is not that of", "fixed", "--against", "copy")
        refused("nowhere: no such run", "fixed", "--against", "nowhere")
        refused("--against windows: it reads windows of at most 32 tokens, not of 40; give --block 32", "longer", "--against", "windows")
        refused("--losses is for runs that read a text, and this one has the task copy", "copy", "--losses", file)
        refused("--losses: there is no folder", "fixed", "--losses", self.folder / "nowhere" / "a")
        refused(f"--losses: {self.folder} is a folder", "fixed", "--losses", self.folder)
        self.assertEqual(list(self.folder.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
