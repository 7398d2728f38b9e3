"""Agents in environments as processes: trained, resumed, evaluated, inspected, played and watched."""

import fcntl
import json
import os
import pty
import re
import resource
import select
import shutil
import signal
import struct
import subprocess
import termios
import time
import unittest

import browser
import numpy
from hostile_test import Parts
from inspect_test import Page
from program import PROGRAM, TINY, ProgramTest, checkpoints, english, environment, merged, metrics, shared_folder, start, train_run

CORRIDOR = {
    "data": {"task": "corridor"},
    "corridor": {"longest": 5},
    "train": {"batch": 4, "block": 10, "updates": 12, "validate_every": 6, "checkpoint_every": 4},
    "actor_critic": {"validation_episodes": 5},
}

shared = None  # the folder of a run in a corridor and one of a text


def setUpModule():
    global shared
    shared = shared_folder()
    (shared / "text.txt").write_text(english(4000))
    train_run(shared / "corridor", merged(TINY, CORRIDOR))
    train_run(shared / "text", merged(TINY, {"data": {"path": "text.txt"}}))


def grids(text):
    """The cells of each frame, row by row."""
    frames = []
    for line in text.splitlines():
        if line.startswith("  |"):
            if not frames or len(frames[-1]) == 9:
                frames.append([])
            frames[-1] += [cell.strip() for cell in line.strip().strip("|").split("|")]
    return frames


def solution(object_cells, door_cells):
    """The last action: to the door of the object's colour."""
    colour = object_cells[1].split()[0]
    return "k" if door_cells[1] == f"{colour} door" else "j"


class AgentTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.run_folder = shared / "corridor"


class Evaluation(AgentTest):
    def evaluate(self, *arguments):
        return self.succeed_json("eval", self.run_folder, "--episodes", 20, *arguments)

    def test_the_same_seed_gives_the_same_numbers(self):
        free = {"seconds", "steps_per_second", "peak_memory"}
        kept = lambda result: {key: value for key, value in result.items() if key not in free}
        first, again, other = self.evaluate(), self.evaluate("--streams", 3), self.evaluate("--seed", 2)
        self.assertEqual(first["episodes"], 20)
        for key in ("success", "return", "episode_steps", "steps"):
            self.assertEqual(first[key], again[key])
        self.assertNotEqual(first["steps"], other["steps"])
        self.assertEqual(kept(self.evaluate("--greedy")), kept(self.evaluate("--greedy")))
        self.assertLessEqual(first["success_low"], first["success"])
        self.assertEqual(len(first["layers"]), 2)
        self.assertEqual((again["streams"], again["options"]), (3, {"precision": "float32"}))
        self.assertEqual(self.evaluate("--max-span", 3)["options"]["max_span"], 3)
        self.assertAlmostEqual(first["memory_mean"], numpy.mean([layer["memory_mean"] for layer in first["layers"]]))

    def test_more_environments_than_fit_are_refused(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
        many = ("--episodes", 10_000_000, "--streams", 1 << 20)
        self.refuse("eval", self.run_folder, *many, says="1048576 environments at a time may need", status=1, preexec_fn=limit)

    def test_another_world(self):
        short = self.evaluate("--set", "corridor.longest=3", "--greedy")
        self.assertEqual(short["set"], ["corridor.longest=3"])
        self.assertLessEqual(short["episode_steps_high"], 4 * 3 + 50)
        self.assertEqual(short["steps"], self.evaluate("--set", "corridor.longest=3", "--greedy")["steps"])
        long = self.evaluate("--set", "corridor.shortest=90", "--set", "corridor.longest=90")
        self.assertGreater(long["episode_steps"], 89)
        evaluate = ("eval", self.run_folder, "--set")
        again = ("train", shared / "corridor" / "config.toml", "--out", self.folder / "again", "--set=model.dropout=0.1")
        self.refuse(*again, says="is not the one that acted", status=1)
        self.refuse(*evaluate, "corridor.longst=9", says="did you mean 'longest'", status=1)
        self.refuse(*evaluate, "corridor.longest=2", says="corridor.longest", status=1)
        self.refuse(*evaluate, "train.batch=2", says="train", status=1)

    def test_info_and_metrics(self):
        info = self.succeed_json("info", self.run_folder)
        self.assertIn('task = "corridor"', info["config"])
        self.assertEqual(info["update"], 12)
        self.assertIn("success", info["history"][-1])
        self.assertEqual(info["environment"]["actions"], ["up", "down", "left", "right"])
        self.assertEqual(info["environment"]["most_steps"], 4 * 5 + 50)
        self.assertEqual(info["training"], [line for line in metrics(self.run_folder) if line["split"] == "train"][-1])
        self.assertIn("acts in corridor: 9 cells of 6 words are seen, actions up, down, left, right", self.succeed("info", self.run_folder).stdout)
        lines = [line for line in metrics(self.run_folder) if line["split"] == "train"]
        self.assertIn("steps_per_second", lines[-1])


class Inspect(AgentTest):
    def inspect(self, *arguments):
        self.page = self.folder / "page.html"
        self.succeed("inspect", self.run_folder, "-o", self.page, *arguments)
        return json.loads(Page(self.page.read_text()).scripts[0])

    def test_the_page_holds_the_steps(self):
        data = self.inspect("--episodes", 3, "--seed", 5)
        played = self.succeed_json("eval", self.run_folder, "--episodes", 3, "--seed", 5, "--streams", 1)
        self.assertEqual(data["count"], played["steps"])
        self.assertEqual(len(data["begins"]), 3)
        self.assertIn(["environment", "corridor"], data["facts"])
        for seen, layer in zip(data["layers"], played["layers"]):
            self.assertAlmostEqual(seen["mean"], layer["memory_mean"], places=6)
        for cells, heading in zip(data["cells"], data["headings"]):
            self.assertRegex(heading, rf"^episode \d · success [01] · return [01] · {len(cells)} steps$")
            self.assertRegex(cells[0][0], "^↑ (red|blue) object")
            self.assertEqual(cells[0][2]["sight"][4], ["agent"])
            self.assertRegex(cells[0][2]["act"], r"^(up|down|left|right) \(up 0\.\d\d, ")
        self.assertIn(["whole episodes", "3 of 3"], data["facts"])
        done = self.succeed("inspect", self.run_folder, "-o", self.page, "--episodes", 3, "--tokens", 4)
        self.assertRegex(done.stderr, r"note: the page ends after 4 steps, in episode [12] of 3; --tokens has more")
        few = self.inspect("--tokens", 4)
        self.assertEqual([few["count"], len(few["numbers"]["value"])], [4, 4])

    @unittest.skipUnless(browser.BROWSER, browser.MISSING)
    def test_the_page_in_a_browser(self):
        data = self.inspect("--episodes", 3)
        for view in ("", "#by=number:value", "#layer=all", "#at=2"):
            dom, messages = browser.show(self.page, view)
            self.assertEqual(messages, [])
            steps = [attributes for name, attributes in Page(dom).elements if name == "span" and "data-cell" in attributes]
            panes = 2 if view == "#layer=all" else 1
            self.assertEqual(len(steps), data["count"] * panes)
            shaded = [step for step in steps if "background-color" in step.get("style", "")]
            self.assertEqual(len(shaded) == len(steps), view != "#at=2")
            self.assertEqual(dom.count('class="window"'), 3 * panes)
            self.assertIn("object</div>", dom)
            if view != "#at=2":
                self.assertIn("b: block, d: door, o: object", dom)


class Play(AgentTest):
    def test_a_scripted_walk_earns_one(self):
        options = ("play", "corridor", "--set", "corridor.longest=6", "--seed", 4)
        frames = grids(self.succeed(*options, input_text="l" * 5).stdout)
        doors = next(i for i, cells in enumerate(frames) if "door" in cells[1])
        last = solution(frames[0], frames[doors])
        done = self.succeed(*options, input_text=f"right {'l' * (doors - 1)}\n{last} q left").stdout
        self.assertIn(f"episode 0 ended: success 1, return 1, {doors + 1} steps", done)
        self.assertIn("return 0; success 1 on average", done)
        wrong = {"k": "j", "j": "k"}[last]
        self.assertIn("ended: success 0", self.succeed(*options, input_text="l" * doors + wrong).stdout)
        anew = grids(self.succeed(*options, input_text="llr").stdout)
        self.assertEqual(anew[0], anew[-1])

    def succeed(self, *arguments, input_text=None, **options):
        if input_text is None:
            return super().succeed(*arguments, **options)
        done = subprocess.run([PROGRAM, *map(str, arguments)], input=input_text, capture_output=True, text=True, env=environment())
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def test_the_map_is_shown_on_demand(self):
        options = ("play", "portal", "--set", "portal.rooms=3")
        self.assertNotIn("#######", self.succeed(*options, input_text="").stdout)
        shown = self.succeed(*options, "--map", input_text="").stdout
        self.assertIn("#######", shown)
        self.assertIn("@ agent", shown)
        wide = self.succeed("play", "corridor", "--set", "corridor.shortest=100000", "--set", "corridor.longest=100000",
                            "--map", input_text="l" * 70).stdout
        self.assertLessEqual(max(map(len, wide.splitlines())), 120)
        self.assertEqual(wide.count("@"), 71 * 2)  # and the legend's

    def test_a_run_is_watched(self):
        text = self.succeed("play", "corridor", self.run_folder, "--episodes", 2, "--seed", 5, input_text="").stdout
        played = self.succeed_json("eval", self.run_folder, "--episodes", 2, "--seed", 5, "--streams", 1)
        self.assertEqual(len(grids(text)), played["steps"])
        self.assertEqual(text.count("the episode ends: success"), 2)
        strips = re.findall(r"  layer 0  ([#.]*)@$", text, re.M)
        self.assertEqual(len(strips), played["steps"])
        self.assertEqual(strips[0], "")
        self.assertEqual(strips[1], "#")
        self.assertAlmostEqual(
            sum(strip.count("#") for strip in strips) / len(strips), played["layers"][0]["memory_mean"], places=6
        )
        self.assertRegex(text, r"0 \(↑ (red|blue) object\)")

    def test_no_step_is_cut_away(self):
        world = ("--set", "corridor.longest=50", "--set", "corridor.shortest=50")
        text = self.succeed("play", "corridor", self.run_folder, "--episodes", 1, *world, input_text="").stdout
        step = None
        for line in text.splitlines():
            if found := re.search(r"^corridor, episode 0, step (\d+)$", line):
                step = int(found[1])
            if found := re.match(r"  layer \d  (.*)@$", line):
                self.assertLessEqual(len(line), 100)
                numbers = [int(number) for number in re.findall(r"\d+", found[1])]
                marks = re.sub(r"([#.])\d+\1", "", found[1])
                self.assertEqual(set(marks) - set("#."), set(), line)
                self.assertEqual(sum(numbers) + len(marks), step, line)
        self.assertGreaterEqual(step, 49)
        self.assertRegex(text, r"\.\d+\.")


class OnATerminal(AgentTest):
    """`lapse play` in a pseudo-terminal."""

    def start(self, *arguments, rows=40):
        self.master, slave = pty.openpty()
        self.addCleanup(os.close, self.master)
        self.addCleanup(os.close, slave)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 100, 0, 0))
        self.slave, self.before = slave, termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            [PROGRAM, "play", *map(str, arguments)], stdin=slave, stdout=slave, stderr=slave, env=environment()
        )
        self.addCleanup(self.process.kill)
        self.shown = ""
        return self.until("q: leave")

    def until(self, words, keys=""):
        """Presses keys, and waits for what they show."""
        os.write(self.master, keys.encode())
        begin, deadline = len(self.shown), time.monotonic() + 60
        while words not in self.shown[begin:]:
            self.assertLess(time.monotonic(), deadline, self.shown[begin:])
            if select.select([self.master], [], [], 1)[0]:
                self.shown += os.read(self.master, 65536).decode(errors="replace")
        return re.sub("\033\\[[?0-9;]*[a-zA-Z]", "", self.shown[begin:])

    def left(self, status):
        deadline = time.monotonic() + 60
        while self.process.poll() is None:
            self.assertLess(time.monotonic(), deadline)
            if select.select([self.master], [], [], 0.1)[0]:
                self.shown += os.read(self.master, 65536).decode(errors="replace")
        self.assertEqual(self.process.returncode, status)
        self.assertEqual(termios.tcgetattr(self.slave), self.before)
        while select.select([self.master], [], [], 0.2)[0]:
            self.shown += os.read(self.master, 65536).decode(errors="replace")
        self.assertIn("\033[?25h\033[?1049l", self.shown)  # the cursor and the screen of before

    def test_arrow_keys(self):
        first = self.start("corridor", "--set", "corridor.longest=5")
        self.assertIn("object", first)
        self.assertIn("right: reward 0", self.until("q: leave", "\033[C"))
        self.assertIn("left: reward 0", self.until("q: leave", "\033[D"))
        self.assertIn("step 3", self.until("q: leave", "\033OC"))
        self.assertIn("step 0", self.until("q: leave", "r"))
        os.write(self.master, b"q")
        self.left(0)

    def test_every_way_out_restores_the_terminal(self):
        self.start("t_maze")
        os.write(self.master, b"\003")
        self.left(0)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self.start("portal")
            self.process.send_signal(number)
            self.left(-number)

    def test_an_agent_is_watched(self):
        self.start("corridor", self.run_folder, "--speed", 50)
        self.assertIn("step 1", self.until("q: leave", " "))
        self.assertIn("step 0", self.until("q: leave", "b"))
        self.assertIn("step 1", self.until("q: leave", "\033[C"))
        self.assertIn("75 steps/s", self.until("q: leave", "+"))
        self.until("episode 1, step 0", "p")
        os.write(self.master, b"q")
        self.left(0)

    def test_what_an_agent_remembers_fits_the_screen(self):
        for rows, words in ((24, "layer 1 "), (16, "layer 1 "), (13, "layers 0-1 have no room here: ")):
            with self.subTest(rows=rows):
                self.start("corridor", self.run_folder, rows=rows)
                for _ in range(3):
                    frame = self.until("q: leave", " ")
                self.assertIn(words, frame)
                self.assertLessEqual(frame.count("\n"), rows - 1)
                os.write(self.master, b"q")
                self.left(0)


class Refusals(AgentTest):
    def test_verbs_of_the_other_kind(self):
        out = ("-o", self.folder / "page.html")
        run, text = self.run_folder, shared / "text"
        self.refuse("generate", run, says=["corridor", "`lapse play`"], status=1)
        self.refuse("prune", run, "--margin", 1, says=["corridor", "`lapse eval`"], status=1)
        self.refuse("eval", run, "--split", "test", says="--split is for runs that read a text", status=1)
        self.refuse("inspect", run, "--offset", 3, *out, says="--offset is for runs that read a text", status=1)
        self.refuse("inspect", text, "--greedy", *out, says="--greedy is for runs that act", status=1)
        self.refuse("eval", text, "--seed", 3, says="--seed is for runs that act in an environment", status=1)
        self.refuse("eval", text, "--set", "corridor.longest=9", says="--set is for runs that act in an environment", status=1)
        self.refuse("play", "corridor", text, says=["reads a text", "`lapse generate`", "`lapse inspect`"], status=1)
        self.refuse("export", run, "--out", self.folder / "t5", says="this run acts in an environment", status=1)
        self.refuse("play", "corridor", "--set", "portal.rooms=4", says="[portal] has no effect here; give values of [corridor]", status=1)
        self.refuse("eval", run, "--set", "train.batch=3", says="[train] has no effect here", status=1)
        self.refuse("play", "portal", run, says=f"lapse play corridor {run}", status=1)
        self.refuse("play", "corridor", "--greedy", says="no run is named", status=1)
        self.refuse("play", "coridor", says="did you mean 'corridor'?")
        self.refuse("play", "corridor", "--set", "corridor.longst=9", says="did you mean 'longest'", status=1)
        self.refuse("play", "corridor", "--set", "corridor.longest=2", says="longest", status=1)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_absurd_sizes_and_names(self):
        def refused(setting, says):
            begin = time.monotonic()
            self.refuse("train", shared / "corridor.toml", "--out", self.folder / "run", "--set", setting, says=says, status=1)
            self.assertLess(time.monotonic() - begin, 20)

        refused('data.task = "coridor"', "did you mean 'corridor'?")
        refused("corridor.longest=99999999999", "corridor.longest")
        refused("corridor.shortest=9", "corridor.longest = 5")
        refused("train.batch=1000000000", "train.batch")
        unused = ("--set", "portal.rooms=9", "--set", "train.updates=2", "--set", "train.validate_every=0")
        done = self.succeed("train", shared / "corridor.toml", "--out", self.folder / "unused", *unused)
        self.assertIn("lapse: note: --set portal.rooms=9 has no effect: this run does not use [portal]", done.stderr)
        self.assertEqual(done.stderr.count("note:"), 1)
        refused("model.input=adaptive", "leave out model.input and model.output")
        self.refuse(
            *("train", shared / "corridor.toml", "--out", self.folder / "run", "--set", "forgetting.method=selective_attention"),
            *("--set", "selective_attention.budgets=[9, 9]"),
            says="an agent cannot be trained with budgets of rows",
        )
        refused("forgetting.method=h2o", "lapse eval RUN --method h2o --budget N")
        refused("expire_span.random_drop=true", "spans that are cut at random")

    def altered(self, change):
        run = self.folder / "run"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(self.run_folder, run)
        newest, *older = checkpoints(run)
        for path in older:
            path.unlink()
        parts = Parts(newest)
        change(parts)
        parts.write(newest)
        return ("train", shared / "corridor.toml", "--out", run, "--resume", "--quiet", "--set", "train.updates=14")

    def test_altered_environments_in_a_checkpoint(self):
        self.succeed(*self.altered(lambda parts: None))

        def shorter(parts):
            _, shape, data = parts.tensors["feed.worlds"]
            parts.tensors["feed.worlds"] = ["I64", [shape[0] - 1, shape[1]], data[: len(data) // shape[0] * (shape[0] - 1)]]

        def nowhere(parts):
            kind, shape, data = parts.tensors["feed.worlds"]
            values = numpy.frombuffer(data, "<i8").reshape(shape).copy()
            values[1, 1] = 10**12
            parts.tensors["feed.worlds"] = [kind, shape, values.tobytes()]

        def absent(parts):
            del parts.tensors["feed.agents"]

        def other_type(parts):
            kind, shape, data = parts.tensors["feed.rewards"]
            parts.tensors["feed.rewards"] = ["I64", shape, data]

        def more(parts):
            parts.tensors["feed.plans"] = parts.tensors["feed.rewards"]

        for change, says in ((shorter, "feed.worlds"), (nowhere, "the length is 1000000000000"), (absent, "feed.agents"),
                             (other_type, "feed.rewards"), (more, "feed.plans")):
            self.refuse(*self.altered(change), says=says, status=1)

    def test_a_truncated_checkpoint(self):
        resume = self.altered(lambda parts: None)
        newest = checkpoints(self.folder / "run")[0]
        newest.write_bytes(newest.read_bytes()[:-100])
        done = self.refuse(*resume, says="no usable checkpoint", status=1, warns=True)
        self.assertIn(f"{newest}: tensor", done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 2)


class Resume(AgentTest):
    def weights(self, run):
        newest = checkpoints(run)[0]
        return newest.name, Parts(newest).tensors

    def test_a_killed_run_ends_as_one_that_was_not(self):
        settings = ("--quiet", "--set", "train.updates=60", "--set", "train.checkpoint_every=3")
        whole, broken = self.folder / "whole", self.folder / "broken"
        loud = self.succeed("train", shared / "corridor.toml", "--out", whole, *settings[1:]).stderr
        self.assertRegex(loud, r"\d success  \d\.\d+ return")
        self.assertRegex(loud, r"update 60: valid \d\.\d+ success  \d\.\d+ return")
        process = start("train", shared / "corridor.toml", "--out", broken, *settings)
        for _ in range(600):
            if len(list((broken / "checkpoints").glob("*.safetensors"))) > 1 or process.poll() is not None:
                break
            time.sleep(0.02)
        process.kill()
        process.communicate()
        self.assertLess(self.weights(broken)[0], self.weights(whole)[0], "killed too late to test anything")
        self.succeed("train", shared / "corridor.toml", "--out", broken, "--resume", *settings)
        self.assertEqual(self.weights(broken), self.weights(whole))


if __name__ == "__main__":
    unittest.main()
