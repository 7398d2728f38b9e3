"""`lapse plot` as a process: pictures of runs, and what it refuses."""

import json
import os
import pathlib
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import unittest

from program import PROGRAM, TINY, ProgramTest, english, lapse, merged, metrics, shared_folder, train_run

shared = None


def setUpModule():
    global shared
    shared = shared_folder()
    (shared / "text.txt").write_text(english(6000))
    os.environ["LAPSE_PYTHON"] = sys.executable
    runs = {
        "expire": {"data": {"path": "text.txt"}},
        "fixed": {"data": {"path": "text.txt"}, "forgetting": {"method": "fixed_span"}},
        "corridor": {"data": {"task": "corridor"}, "corridor": {"longest": 5}, "actor_critic": {"validation_episodes": 5}},
        "parity": {"data": {"task": "parity"}, "parity": {"bits": 5}, "train": {"block": 10}},
    }
    for name, changes in runs.items():
        train_run(shared / name, merged(TINY, {"train": {"log_every": 4, "validate_every": 5, "validation_blocks": 0}}, changes))


def scale(path, curve):
    """The map (a, b, c, d) that takes the points of a curve to those of a path, x to a x + b and y to c y + d; None if there is none."""
    if len(path) != len(curve):
        return None
    maps = []
    for axis in (0, 1):
        ordered = sorted((point[axis], at[axis]) for point, at in zip(curve, path))
        (low, low_at), (high, high_at) = ordered[0], ordered[-1]
        if high == low:
            return None
        slope = (high_at - low_at) / (high - low)
        maps += [slope, low_at - slope * low]
    return maps if fits(maps, path, curve) else None


def fits(maps, path, curve):
    a, b, c, d = maps
    return len(path) == len(curve) and all(
        abs(a * x + b - at_x) < 0.01 and abs(c * y + d - at_y) < 0.01 for (x, y), (at_x, at_y) in zip(curve, path)
    )


class Plot(ProgramTest):
    def plot(self, *arguments, out="picture.svg"):
        path = self.folder / out
        done = self.succeed("plot", *arguments, "-o", path, cwd=shared)
        self.assertEqual((done.stdout, done.stderr), (f"{path}\n", ""))
        self.assertEqual([p.name for p in self.folder.iterdir()], [out])
        content = path.read_bytes()
        path.unlink()
        return content

    def drawn(self, svg):
        """The points of each path that is drawn within axes."""
        return [[(float(x), float(y)) for x, y in re.findall(r"[ML] (\S+) (\S+)", path)] for path in re.findall(r'<path d="([^"]+)" clip-path', svg)]

    def test_lines_of_several_processes_and_without_numbers(self):
        """memory_of_processes is a list, and null a perplexity beyond all numbers: the others are drawn."""
        picture = self.drawn(self.plot("expire").decode())
        with tempfile.TemporaryDirectory() as folder:
            run = pathlib.Path(folder, "expire")
            shutil.copytree(shared / "expire", run)
            lines = [{**line, "memory_of_processes": [1.0, 2.0], "ppl": None} for line in metrics(run)]
            (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            self.assertEqual(self.drawn(self.plot(run).decode()), picture)

    def test_files_of_the_working_directory_are_not_run(self):
        names = [shared / f"{name}.py" for name in ("random", "json", "matplotlib")]
        for name in names:
            name.write_text("raise SystemExit('of the working directory')\n")
            self.addCleanup(name.unlink)
        self.plot("expire")

    def test_png(self):
        png = self.plot("expire", "fixed", "--title", "two runs", out="picture.PNG")
        self.assertEqual(png[:8], b"\x89PNG\r\n\x1a\n")
        width, height = struct.unpack(">II", png[16:24])
        self.assertTrue(1000 <= width <= 3000 and 400 <= height <= 1500, (width, height))
        self.assertGreater(len(png), 10000)

    def test_svg_has_the_labels(self):
        svg = self.plot("expire", "fixed/", "--title", "two & <b>").decode()
        for words in ("expire", "fixed", "two &amp; &lt;b&gt;", "bits per byte", "updates", "mean of the layers"):
            self.assertIn(words, svg)
        svg = self.plot("expire", "fixed", "--label", "Ours", "--label", "Theirs", "--smooth", 2).decode()
        self.assertIn("Ours", svg)
        self.assertIn("Theirs", svg)
        self.assertNotIn("expire", svg)

    def test_many_curves_and_long_labels_leave_the_axes_their_room(self):
        def heights(svg):
            return [float(height) for height in re.findall(r'<rect x="\S+" y="\S+" width="\S+" height="(\S+)"', svg)]

        usual = heights(self.plot("expire", "fixed").decode())
        labels = [f"run {i} " + "of a long name " * 9 for i in range(30)]
        named = [word for label in labels for word in ("--label", label)]
        svg = self.plot(*["expire", "fixed"] * 15, *named, "--title", "many words " * 30).decode()
        for i in range(30):
            self.assertEqual(len(re.findall(rf">run {i} [^<]*…[^<]*<", svg)), 2)
        self.assertEqual(len(heights(svg)), len(usual))
        self.assertGreater(min(heights(svg)), 0.7 * min(usual))

    def test_curves_are_those_of_the_metrics(self):
        svg = self.plot("expire", "fixed", "--smooth", 1).decode()
        drawn = self.drawn(svg)

        def curve(run, split, value):
            return [(line["update"], value(line)) for line in metrics(shared / run) if line["split"] == split]

        for value in (lambda line: line["bpb"], lambda line: sum(layer["memory_mean"] for layer in line["layers"]) / 2):
            # The axes' scale, from one curve; all others must have it too.
            first = curve("expire", "train", value)
            self.assertGreater(len(first), 3)
            maps = next(filter(None, (scale(path, first) for path in drawn)), None)
            self.assertIsNotNone(maps, first)
            self.assertLess(maps[2], 0)  # higher is nearer the top
            for run in ("expire", "fixed"):
                for split in ("train", "valid"):
                    self.assertTrue(any(fits(maps, path, curve(run, split, value)) for path in drawn), (run, split))

    def test_one_run_shows_its_layers(self):
        svg = self.plot("expire", "--x", "tokens").decode()
        for words in ("layer 0", "layer 1", "tokens trained on"):
            self.assertIn(words, svg)
        self.assertIn("hours of training", self.plot("expire", "--x", "hours").decode())

    def test_validations_stand_where_they_were_made(self):
        run = self.folder / "made"  # 4 updates a line of training, of 1 s and 10 tokens/s each; validation after every one
        run.mkdir()
        layers = [{"memory_mean": 1.0}]
        lines = []
        for update in range(1, 11):
            lines.append({"split": "valid", "update": update, "loss": 3 - 0.2 * update, "layers": layers})
            if update % 4 == 0:
                lines.append({"split": "train", "update": update, "loss": 3 - 0.2 * update, "layers": layers, "ms_per_update": 1000, "tokens_per_second": 10})
        (run / "config.toml").write_text("")
        (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.succeed("plot", run, "--x", "tokens", "--smooth", 1, "-o", self.folder / "a.svg")
        drawn = self.drawn((self.folder / "a.svg").read_text())
        valid = [(10 * update, 3 - 0.2 * update) for update in range(1, 11)]
        maps = next(filter(None, (scale(path, valid) for path in drawn)), None)
        self.assertIsNotNone(maps)
        self.assertTrue(any(fits(maps, path, [valid[3], valid[7]]) for path in drawn))

    def test_the_same_runs_give_the_same_picture(self):
        self.assertEqual(self.plot("expire"), self.plot("expire"))
        self.assertEqual(self.plot("expire", out="a.pdf")[:5], b"%PDF-")

    def test_tasks(self):
        self.assertIn("accuracy", self.plot("parity").decode())
        self.assertIn("loss, nats per token", self.plot("parity", "expire").decode())  # what they have in common

    def losses(self, run, *arguments):
        file = shared / f"{run}.jsonl"
        self.succeed("eval", run, *arguments, "--losses", file, cwd=shared)
        self.addCleanup(file.unlink)
        return file.name, [json.loads(line) for line in file.read_text().splitlines()]

    def test_losses_along_a_text(self):
        """Window means in the text's order, although streams take turns in the file."""
        name, lines = self.losses("expire")
        svg = self.plot(name, "--smooth", 10, "--title", "along").decode()
        for words in ("layer 0", "layer 1", "loss, nats per token", "token of the text (means of 10)", "along"):
            self.assertIn(words, svg)
        lines.sort(key=lambda line: line["at"])

        def curve(value):
            return [(sum(line["at"] for line in lines[i : i + 10]) / 10, sum(map(value, lines[i : i + 10])) / 10) for i in range(len(lines) - 9)]

        drawn = self.drawn(svg)
        for value in (lambda line: line["nats"], lambda line: line["memory"][0], lambda line: line["memory"][1]):
            self.assertTrue(any(scale(path, curve(value)) for path in drawn))

    def test_two_readings_along_a_text(self):
        svg = self.plot(self.losses("fixed", "--max-span", 2, "--against", "fixed")[0]).decode()
        for words in ("fixed", "fixed, against", "mean of the layers"):
            self.assertIn(words, svg)

    def evaluated(self, name, *arguments):
        path = shared / f"{name}.json"
        path.write_text(self.succeed("eval", *arguments, "--json", cwd=shared).stdout)
        self.addCleanup(path.unlink)
        return path.name, json.loads(path.read_text())

    def test_a_figure_against_memory(self):
        files, results = zip(*(self.evaluated(f"at{span}", "fixed", "--max-span", span, "--split", "valid") for span in (2, 4, 9)))
        expire = [line for line in metrics(shared / "expire") if line["split"] == "valid"][-1]
        for options, name in (((), "bpb"), (("--metric", "loss"), "loss")):
            svg = self.plot("expire", files[2], files[0], files[1], "--against", "memory", *options).decode()
            self.assertIn("bits per byte" if name == "bpb" else "loss, nats per token", svg)
            self.assertIn(">expire_span<", svg)
            self.assertIn(">fixed_span<", svg)  # one series of three points, by their memory
            curve = [(sum(layer["memory_mean"] for layer in one["layers"]) / 2, one[name]) for one in results]
            maps = next(filter(None, (scale(path, curve) for path in self.drawn(svg))), None)
            self.assertIsNotNone(maps)
            point = (sum(layer["memory_mean"] for layer in expire["layers"]) / 2, expire[name])
            self.assertTrue(any(fits(maps, path, [point]) for path in self.drawn(svg)))
        svg = self.plot(*files, "--against", "memory", "--label", "a", "--label", "b", "--label", "a").decode()
        self.assertNotIn("fixed_span", svg)
        self.assertEqual((svg.count(">a<"), svg.count(">b<")), (1, 1))

        self.assertIn("ms per update", self.plot("expire", "fixed", "--against", "memory", "--metric", "ms_per_update").decode().replace("_", " "))
        self.refused("of different things: parity is of parity", "parity", "expire", "--against", "memory", "-o", self.folder / "a.png")
        tested, _ = self.evaluated("tested", "fixed")
        self.refused("figures are of different texts: expire has those of valid, tested.json has those of test", "expire", tested, "--against", "memory",
                     "-o", self.folder / "a.png")  # fmt: skip
        there, _ = self.evaluated("there", "fixed", "--data", shared / "text.txt")
        self.refused("tested.json has those of test, there.json has those of test of ", tested, there, "--against", "memory", "-o", self.folder / "a.png")
        (shared / "other.txt").write_text(english(3000, seed=5))
        self.addCleanup((shared / "other.txt").unlink)
        train_run(shared / "elsewhere", merged(TINY, {"data": {"path": "other.txt"}}))
        self.addCleanup(shutil.rmtree, shared / "elsewhere")
        other, _ = self.evaluated("other", "elsewhere")
        validated, _ = self.evaluated("validated", "elsewhere", "--split", "valid")
        for inputs, words in ((("expire", "elsewhere"), "other.txt"), ((tested, other), "checksum"), (("expire", validated), "other.txt")):
            self.not_together(words, *inputs)

    def test_figures_of_different_things(self):
        """Runs of different texts, though in different units; a task whose test set was made otherwise; and a part of a validation."""
        (shared / "other.txt").write_text(english(3000, seed=5))
        self.addCleanup((shared / "other.txt").unlink)
        changes = {"words": {"data": {"path": "other.txt", "unit": "word"}}, "part": {"data": {"path": "text.txt"}, "train": {"validation_blocks": 1}}}
        for name, change in changes.items():
            train_run(shared / name, merged(TINY, change))
            self.addCleanup(shutil.rmtree, shared / name)
        self.not_together("words is of a text (path = ", "expire", "words", "--metric", "bpb")
        whole, _ = self.evaluated("whole", "part", "--split", "valid")
        for other in ("expire", whole):
            self.not_together("part: its validation read a part of the text, 16 tokens (train.validation_blocks)", other, "part")
        alone, _ = self.evaluated("alone", "expire", "--split", "valid", "--streams", 1)
        self.plot("expire", whole, alone, "--against", "memory")  # the same text, all of it
        parity, _ = self.evaluated("parity5", "parity")
        other, _ = self.evaluated("parity6", "parity", "--test-seed", 6)
        self.not_together("parity6.json is of parity (", parity, other)

    def not_together(self, words, *inputs):
        self.refused(words, *inputs, "--against", "memory", "-o", self.folder / "a.png")

    def test_a_run_without_its_configuration(self):
        run = self.folder / "bare"
        run.mkdir()
        shutil.copy(shared / "expire" / "metrics.jsonl", run)
        self.not_together("bare: its config.toml, which says the method and what was read, is not to be read (No such file or directory)", run)
        for text in ("data = 1", "[data]\ntask = []", "[data]\n", "["):
            (run / "config.toml").write_text(text)
            self.not_together("bare: its config.toml", run)

    def record(self, name, *arguments):
        path = shared / f"{name}.json"
        self.succeed("inspect", *arguments, "-o", path, cwd=shared)
        self.addCleanup(path.unlink)
        return path.name, json.loads(path.read_text())

    def test_a_text_shaded_by_memory(self):
        for name, word in (("a.txt", "time"), ("b.txt", "day")):
            (shared / name).write_text(f"Once upon\na {word}, " * 3)
            self.addCleanup((shared / name).unlink)
        texts = ("--data", "a.txt", "--split", "all")
        file, found = self.record("one", "expire", *texts)
        self.assertEqual("".join(cell[0] for cell in found["cells"][0]), (shared / "a.txt").read_text())
        svg = self.plot(file).decode()
        self.assertEqual((svg.count(">layer 0<"), svg.count(">layer 1<"), svg.count(">span<")), (1, 1, 1))
        self.assertEqual(svg.count(">O<"), 6)  # of both layers
        held = self.plot(file, "--metric", "held").decode()
        self.assertIn("timesteps held", held)
        # Of rows that are there at the end nobody knows how long they would stay.
        there = sum(stays for layer in found["layers"] for stays in layer["there"])
        self.assertGreater(there, 0)
        self.assertEqual(held.count("fill: #fce3c4"), there + 1, "one more in the legend")
        self.assertIn("still there at the end", held)
        file, found = self.record("two", "expire", *texts, "--compare", "b.txt")
        self.assertEqual([len(one["layers"]) for one in (found, found["other"])], [2, 2])
        svg = self.plot(file).decode()
        for words in ("layer 0, A", "layer 0, B", "layer 1, A", "layer 1, B"):
            self.assertIn(f">{words}<", svg)
        # Each text has numbers of its own.
        for layer in found["other"]["layers"]:
            layer["told"]["span"] = [found["layers"][0]["told"]["span"][0]] * len(layer["told"]["span"])
        (shared / "changed.json").write_text(json.dumps(found))
        self.addCleanup((shared / "changed.json").unlink)
        changed = self.plot("changed.json").decode()
        fills = lambda drawn: re.findall(r"fill: (#[0-9a-f]{6})", drawn)
        self.assertNotEqual(fills(changed), fills(svg))
        self.refused("has no 'loss'; it has held, span", file, "--metric", "loss", "-o", self.folder / "a.svg")
        self.refused("draw texts one by one", file, file, "-o", self.folder / "a.svg")
        self.refused("--x is for runs", file, "--x", "tokens", "-o", self.folder / "a.svg")
        broken = self.write("broken.json", '{"title": "a", "layers": [1]}')
        self.refused("not a whole file of `lapse inspect -o FILE.json`", broken, "-o", self.folder / "a.svg")

    def test_episodes_shaded_by_memory(self):
        file, found = self.record("agent", "corridor", "--episodes", 1)
        self.assertEqual(found["unit"], "step")
        svg = self.plot(file, "--metric", "held").decode()
        self.assertIn("timesteps held", svg)
        # Steps stand apart: between the shades of some neighbours in a line there is room for a letter.
        shades = sorted({(float(y), float(x), float(to)) for x, y, to in re.findall(r'<path d="M (\S+) (\S+) \nL (\S+) \S+ \n[^"]*z\n?"', svg)})
        width = statistics.median(to - x for _, x, to in shades)
        gaps = [b[1] - a[2] for a, b in zip(shades, shades[1:]) if a[0] == b[0]]
        self.assertTrue(any(0.9 * width < gap < 1.1 * width for gap in gaps), (width, gaps))

    def test_a_spike_is_drawn_though_it_is_narrow(self):
        lines = [{"at": i, "nats": 20.0 if 20_002 <= i < 20_012 else 1.0, "memory": [3]} for i in range(30_000)]
        files = []
        for name in ("one", "two"):  # called the same, in folders of their own
            folder = shared / name
            folder.mkdir()
            self.addCleanup(shutil.rmtree, folder)
            files.append(folder / "losses.jsonl")
            files[-1].write_text("".join(json.dumps(line) + "\n" for line in lines))
        svg = self.plot(*files, "--smooth", 10).decode()
        self.assertRegex(svg, r">20(\.0)?<")
        self.assertTrue(">one<" in svg and ">two<" in svg)

    def test_stretches_of_a_text_are_not_joined(self):
        """As of documents of which a window holds the beginning."""
        lines = [{"at": at, "nats": at % 7 / 7, "memory": [3]} for at in [*range(10), *range(1000, 1012), 2000]]
        file = self.folder / "some.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.succeed("plot", file, "--smooth", 5, "-o", self.folder / "a.svg")
        path = next(path for path in re.findall(r'<path d="([^"]+)" clip-path', (self.folder / "a.svg").read_text()) if path.count("L") > 5)
        self.assertEqual((path.count("M"), path.count("L")), (3, 5 + 7))  # of the last alone, a point
        many = [{"at": 100 * piece + i, "nats": float(i), "memory": [3]} for piece in range(2500) for i in range(40)]
        file.write_text("".join(json.dumps(line) + "\n" for line in many))
        self.succeed("plot", file, "--smooth", 1, "-o", self.folder / "a.svg")
        self.assertIn(">35<", (self.folder / "a.svg").read_text())  # an axis of losses from 0 to 39

    def test_many_layers_have_colours_of_their_own(self):
        run = self.folder / "deep"
        run.mkdir()
        lines = [{"split": "train", "update": n, "loss": 1.0, "layers": [{"memory_mean": n + layer} for layer in range(12)]} for n in (1, 2)]
        (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.succeed("plot", run, "-o", self.folder / "a.svg")
        drawn = set(re.findall(r"stroke: (#[0-9a-f]{6})", (self.folder / "a.svg").read_text())) - {"#000000", "#b0b0b0", "#cccccc"}
        self.assertGreaterEqual(len(drawn), 12)

    def test_agents(self):
        name, result = self.evaluated("agent", "corridor", "--episodes", 20)
        for arguments in (("corridor",), ("corridor", name, "--against", "memory")):
            svg = self.plot(*arguments).decode()
            self.assertIn(">success<", svg)
        self.assertIn("success", result)
        svg = self.plot("corridor", "--metric", "entropy").decode()  # lines of training have it alone
        self.assertTrue(">entropy<" in svg and ">corridor<" in svg)
        self.assertIn(">steps taken<", self.plot("corridor", "--x", "tokens").decode())
        self.assertEqual(self.plot("corridor", "--x", "steps"), self.plot("corridor", "--x", "tokens"))
        greedy, _ = self.evaluated("greedy", "corridor", "--episodes", 20, "--greedy")
        for other in (name, "corridor"):
            self.not_together("greedy.json is of corridor (likeliest actions", other, greedy)
        longer, _ = self.evaluated("longer", "corridor", "--episodes", 20, "--set", "corridor.longest=8")
        for other in (name, "corridor"):
            self.not_together("longer.json is of corridor (drawn actions, longest = 8, ", other, longer)

    def test_runs_that_are_called_the_same(self):
        runs = []
        for folder in "ab":
            runs.append(shared / folder / "seed1")
            runs[-1].mkdir(parents=True)
            self.addCleanup(shutil.rmtree, shared / folder)
            shutil.copy(shared / "expire" / "metrics.jsonl", runs[-1])
        svg = self.plot(*runs).decode()
        self.assertTrue(all(f">{run}<" in svg for run in runs), svg[-2000:])
        self.assertIn(">seed1<", self.plot(runs[0]).decode())

    def test_an_agents_loss_is_not_a_texts(self):
        self.assertIn(">loss<", self.plot("corridor", "--metric", "loss").decode())
        self.refused("their figures have nothing in common; plot them apart", "corridor", "expire", "-o", self.folder / "a.png")

    def test_an_agent_whose_first_episode_ends_late(self):
        run = self.folder / "late"
        run.mkdir()
        line = {"split": "train", "loss": 1.0, "layers": [{"memory_mean": 1.0}], "entropy": 2.0}
        lines = [line | {"update": 1}] + [{"split": "train", "update": n, "loss": 1.0, "success": 0.5, "return": 1, "entropy": 2.0} for n in (2, 3)]
        (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.succeed("plot", run, "-o", self.folder / "a.svg")
        self.assertIn(">success<", (self.folder / "a.svg").read_text())

    def test_another_figure_of_runs(self):
        self.assertIn("loss, nats per token", self.plot("expire", "--metric", "loss").decode())
        self.refused("has no figure 'blue'; it has bpb, loss, cost, gradient_norm", "expire", "--metric", "blue", "-o", self.folder / "a.png")

    def test_half_a_line_is_passed_over(self):
        run = self.folder / "run"
        run.mkdir()
        lines = (shared / "expire" / "metrics.jsonl").read_text()
        (run / "metrics.jsonl").write_text(lines + lines[:50])
        self.succeed("plot", run, "-o", self.folder / "a.png", cwd=shared)
        (run / "metrics.jsonl").write_text(lines + lines[:50] + "\n" + lines)
        self.refused(f"metrics.jsonl: line {lines.count(chr(10)) + 1} is no JSON", run, "-o", self.folder / "b.png")

    def refused(self, words, *arguments, **options):
        done = lapse("plot", *arguments, cwd=shared, **options)
        self.assertGreater(done.returncode, 0)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertTrue(done.stderr.startswith("lapse: error: "), done.stderr)
        self.assertIn(words, done.stderr)

    def test_what_it_refuses(self):
        out = ("-o", self.folder / "a.png")
        self.refused("nowhere: no such run", "nowhere", *out)
        self.refused("not a run's folder", ".", *out)
        self.refused("expire is a run, and text.txt a file; draw them one by one", "text.txt", "expire", *out)
        self.refused("neither a run's folder nor a file of `lapse eval --losses`", "text.txt", *out)
        self.refused("--x is for runs", "text.txt", "--x", "hours", *out)
        self.refused("--smooth is for curves", "expire", "--against", "memory", "--smooth", 3, *out)
        self.refused("neither a run's folder nor a result of `lapse eval --json`", "text.txt", "--against", "memory", *out)
        self.refused("there is no 'memroy'", "expire", "--against", "memroy", *out)
        (shared / "half.json").write_text('{"layers": [], "complete": false}')
        self.addCleanup((shared / "half.json").unlink)
        self.refused("was interrupted", "half.json", "--against", "memory", *out)
        self.refused("must end in .png, .svg or .pdf", "expire", "-o", "a.gif")
        self.refused("must end in .png, .svg or .pdf", "expire", "-o", "png")
        self.refused("1 label for 2 runs; give --label once for each", "expire", "fixed", "--label", "a", *out)
        self.refused("--out is required", "expire")
        self.refused("did you mean '--title'", "expire", "--titel", "a", *out)
        self.refused("cannot write", "expire", "-o", self.folder / "nowhere" / "a.png")
        strange = self.folder / os.fsdecode(b"run\xff")
        shutil.copytree(shared / "expire", strange)
        self.refused("which the script gets as JSON: not UTF-8 at byte", strange, *out, errors="replace")
        for content, words in ((b"", "has no line yet"), (b"{}\n[]\n", "has no line of training")):
            run = self.folder / "run"
            run.mkdir(exist_ok=True)
            (run / "metrics.jsonl").write_bytes(content)
            self.refused(words, run, *out)

    def test_an_interpreter_without_matplotlib(self):
        out = ("-o", self.folder / "a.png")
        bare = self.write("bare", f'#!/bin/sh\nexec {json.dumps(sys.executable)} -I -S "$@"\n')
        bare.chmod(0o755)
        self.refused("has no matplotlib", "expire", *out, env={**os.environ, "LAPSE_PYTHON": str(bare)})
        self.refused("cannot be run", "expire", *out, env={**os.environ, "LAPSE_PYTHON": "/no/python"})
        self.assertFalse((self.folder / "a.png").exists())

    def test_an_interpreter_that_draws_nothing(self):
        out = ("-o", self.folder / "a.png")
        environment = {**os.environ, "LAPSE_PYTHON": "/bin/true"}
        self.refused("drew nothing", "expire", *out, env=environment)
        self.succeed("plot", "expire", *out, cwd=shared)
        old = (self.folder / "a.png").read_bytes()
        self.refused("drew nothing", "expire", *out, env=environment)  # an old picture is no new one
        self.assertEqual((self.folder / "a.png").read_bytes(), old)
        (self.folder / "a.png").write_bytes(b"")
        self.refused("drew nothing", "expire", *out, env=environment)

    def checkout(self, name, files=("lapse/cli/plot.py", "build/release/lapse", ".venv/bin/python")):
        """A folder like a checkout, with the program and an interpreter that says who it is."""
        root = self.folder / name
        for path in files:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROGRAM, root / "build/release/lapse")
        for path in files:
            if path.endswith("python"):
                (root / path).write_text(f"#!/bin/sh\necho drawn by {name} >&2\nexit 1\n")
                (root / path).chmod(0o755)
            elif path.endswith(".py"):
                (root / path).write_text("")
        return root / "build/release/lapse"

    def drawn_by(self, program):
        """Which interpreter a program takes if nobody chooses one; those of the PATH are not among them."""
        libraries = str(pathlib.Path(PROGRAM).parent)
        path = self.folder / "path"
        path.mkdir(exist_ok=True)
        (path / "python3").write_text("#!/bin/sh\necho drawn by the PATH >&2\nexit 1\n")
        (path / "python3").chmod(0o755)
        environment = {**os.environ, "LD_LIBRARY_PATH": libraries, "PATH": f"{path}:{os.environ['PATH']}"}
        environment.pop("LAPSE_PYTHON")
        done = subprocess.run([program, "plot", "expire", "-o", self.folder / "a.png"], capture_output=True, text=True, cwd=shared, env=environment)
        self.assertEqual(done.returncode, 1, done.stderr)
        return done.stderr.removeprefix("lapse: error: drawn by ").strip()

    def test_the_interpreter_of_the_own_checkout(self):
        """Found from where the program lies, so that a checkout may be moved; not from any .venv two folders up."""
        self.assertEqual(self.drawn_by(self.checkout("one")), "one")
        self.assertEqual(self.drawn_by(self.checkout("two", ("build/release/lapse", ".venv/bin/python"))), "the PATH")
        self.assertEqual(self.drawn_by(self.checkout("three", ("lapse/cli/plot.py", "build/release/lapse"))), "the PATH")


if __name__ == "__main__":
    unittest.main()
