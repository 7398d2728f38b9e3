"""`lapse play`: a person or an agent acts in an environment, in a pipe and on a terminal."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unittest

from agent_run import AgentTest, setUpModule  # noqa: F401
from program import PROGRAM, environment


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
        self.assertIn("\ncorridor, episode 1, step 0\n", text)
        self.refuse("play", "corridor", self.run_folder, "--speed", 5, says="--speed has no effect without a terminal", status=1)

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

    def start(self, *arguments, rows=40, shows="q: leave"):
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
        return self.until(shows)

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
        none = "layers 0-1 have no room here: {} more"
        cases = [(24, (), "layer 1 "), (16, (), "layer 1 "), (13, (), none.format(1)), (12, (), none.format(2)), (10, (), none.format(4)),
                 (8, (), none.format(6)), (18, ("--map",), "@..."), (17, ("--map",), "the map has no room here: 1 more"), (11, ("--map",), none.format(3))]
        for rows, options, words in cases:
            with self.subTest(rows=rows, options=options):
                self.start("corridor", self.run_folder, *options, rows=rows)
                for _ in range(3):
                    frame = self.until("q: leave", " ")
                self.assertIn(words, frame)
                self.assertIn("layer", frame)
                self.assertEqual("takes" in frame, rows > 8)
                self.assertLessEqual(frame.count("\n"), rows - 1)
                os.write(self.master, b"q")
                self.left(0)

    def test_a_map_follows_the_terminals_size(self):
        self.start("corridor", self.run_folder, "--map", "--set", "corridor.shortest=300", "--set", "corridor.longest=300")
        widest = lambda frame: max(len(line.strip()) for line in frame.splitlines() if "#" in line)
        self.assertEqual(widest(self.until("q: leave", " ")), 100)
        for columns in (200, 60):
            fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
            frame = self.until("step    left: back", "x")
            self.assertEqual(widest(frame), columns)
            self.assertRegex(frame, r"#[.@]*@")
        os.write(self.master, b"q")
        self.left(0)

    def test_a_number_of_episodes_is_refused(self):
        self.start("corridor", self.run_folder, "--episodes", 2, shows="--episodes has no effect on a terminal")
        self.assertEqual(self.process.wait(60), 1)


if __name__ == "__main__":
    unittest.main()
