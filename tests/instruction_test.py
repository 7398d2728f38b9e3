"""The instruction task's logs, checked from their text and the world file alone; and `lapse task show` of every task."""

import json
import os
import pathlib
import random
import re
import unittest

from instruction_log import Chances, Checker, World, WrongLog, summary
from program import ROOT, ProgramTest

VILLAGE = ROOT / "lapse" / "tasks" / "village.json"
SHARED = pathlib.Path(os.environ.get("LAPSE_SHARED", ROOT.parent / "shared"))
LIGHT = SHARED / "data" / "light" / "complex_world_2020-09.json"
CHATTER = SHARED / "data" / "c4-sample.txt"
TASKS = "variable_assignment copy parity long_copy collision instruction".split()
ENVIRONMENTS = "corridor portal t_maze".split()


def world(path):
    return World(json.loads(path.read_text()))


def game(world, rounds, *, seed, ask=0.25, move=0.5, others_move=0.5, unseen_leap=0, target=None, way=None, shuffled=False):
    """A log by the rules, or by others: `unseen_leap` is how often one that moves elsewhere comes from any room and says another;
    `target` and `way` (an exit) choose in place of the draw; `shuffled`: turns in any order."""
    draw, lines, agents = random.Random(seed), [], list(world.start)
    target, way = target or draw.choice, way or draw.choice

    def look():
        if place[me] not in known:
            lines.extend(world.looks[place[me]])
        known.add(place[me])
        if here := [a for a in agents if a != me and place[a] == place[me]]:
            lines.append(f"People here : {' , '.join('the ' + a for a in here)} .")

    def spoke(agent):
        if agent == me:
            for told, asker in tasks.items():
                if place[told] == place[me]:
                    del tasks[told]
                    lines.append(f'You tell the {told} " {asker} wants to see you ! "')
                    return True
        elif place[agent] == place[me] and draw.random() < ask:
            if free := [a for a in agents if place[a] != place[me] and a not in tasks]:
                told = target(free)
                tasks[told] = agent
                lines.append(f'The {agent} says " can you tell the {told} that the {agent} wants to see them ? "')
                return True
        return False

    for number in range(rounds):
        if number % 100 == 0:
            me, place, tasks, known = draw.choice(agents), dict(world.start), {}, set()
            lines.append(f"You are the {me} in the {place[me]} .")
            look()
        lines.append("You overhear : x")
        for agent in draw.sample(agents, len(agents)) if shuffled else agents:
            if spoke(agent) or draw.random() >= (move if agent == me else others_move):
                continue
            origin = place[agent]
            place[agent] = way(world.exits[origin])
            if agent == me:
                lines.append(f"You go to the {place[me]} .")
                look()
                continue
            if origin != place[me] and draw.random() < unseen_leap:
                place[agent] = draw.choice(list(world.exits))
                origin = next(room for room, exits in world.exits.items() if place[me] in exits)
            if origin == place[me]:
                lines.append(f"The {agent} leaves for the {place[agent]} .")
            elif place[agent] == place[me]:
                lines.append(f"The {agent} arrives from the {origin} .")
    return lines


class LogTest(ProgramTest):
    def log(self, length, *settings, seed=1):
        """The whole lines of a log."""
        sets = [f"instruction.{setting}" for setting in (f"test_words={length}", *settings)]
        flags = [word for setting in sets for word in ("--set", setting)]
        shown = self.succeed("task", "show", "instruction", "--seed", seed, "--length", length, *flags).stdout
        return shown.splitlines()[:-1]

    def marks(self):
        """Settings with which a word of chatter begins every round (but for one in two million)."""
        return f"chatter={self.write('word.txt', 'x')}", "chatter_words=1000000"

    def check_chances(self, chances, lines):
        chances.check(lines)
        print({what: round(float(far), 1) for what, far in chances.deviations().items()})
        self.assertEqual(chances.wrong(), {})
        self.assertGreater(min(chances.trials[what][0] for what in ("another asks", "another leaves", "another arrives", "the viewpoint goes")), 500)
        self.assertLessEqual({"rooms of arrivals", "exit of viewpoint", "exit of another", "target"}, set(chances.deviations()))


class Village(LogTest):
    def test_every_line_follows_from_the_rules(self):
        for seed in (1, 2, 3):
            with self.subTest(seed=seed):
                checker = Checker(world(VILLAGE)).check(self.log(60000, seed=seed))
                self.assertGreater(len(checker.distances), 400)
                self.assertGreater(checker.orders, len(checker.distances))

    def test_chatter_pads(self):
        text = self.write("text.txt", "one two three four five six seven, eight nine ten.\n" * 3)
        short = Checker(world(VILLAGE)).check(self.log(60000))
        lines = self.log(60000, f"chatter={text}", "chatter_words=15")
        long = Checker(world(VILLAGE)).check(lines)
        self.assertGreater(summary(long)["mean"], 1.5 * summary(short)["mean"])
        for line in lines:
            if line.startswith("You overhear"):
                self.assertRegex(f"{'one two three four five six seven , eight nine ten . ' * 5}", re.escape(line[15:]))

    def test_how_often_things_happen(self):
        """Each chance of the rules, from logs of 3,800 rounds: four standard errors are 6 % of an expectation of 1,400 departures."""
        for seed in (1, 2):
            with self.subTest(seed=seed):
                self.check_chances(Chances(world(VILLAGE)), self.log(100000, *self.marks(), seed=seed))

    def test_other_rules_are_found(self):
        """Logs that no line betrays, but for leaps: the game in Python passes, and not where its rules are changed."""
        draw = random.Random(1)
        first_more = lambda exits: exits[int(len(exits) * draw.random() ** 1.5)]
        chances = Chances(world(VILLAGE)).check(game(world(VILLAGE), 3000, seed=1))
        self.assertEqual(chances.wrong(), {})
        changes = {
            "asks half the time": ({"ask": 0.5}, "another asks"),
            "asks a tenth of the time": ({"ask": 0.1}, "another asks"),
            "others move nearly always": ({"others_move": 0.9}, "another leaves"),
            "others move a little more": ({"others_move": 0.6}, "another leaves"),
            "the viewpoint goes more": ({"move": 0.6}, "the viewpoint goes"),
            "the first target": ({"target": lambda free: free[0]}, "target"),
            "the first exit more often": ({"way": first_more}, "exit of another"),
            "leaps of those who are not seen": ({"unseen_leap": 0.5}, "be here|been there|not seen"),
            "turns in any order": ({"shuffled": True}, "be here|not the turn of"),
        }
        for name, (rules, expected) in changes.items():
            with self.subTest(name):
                changed = Chances(world(VILLAGE))
                lines = game(world(VILLAGE), 3000, seed=1, **rules)
                if "|" in expected:
                    with self.assertRaisesRegex(WrongLog, expected):
                        changed.check(lines)
                else:
                    self.assertIn(expected, changed.check(lines).wrong())

    def test_seeds(self):
        self.assertEqual(self.log(2000, seed=4), self.log(2000, seed=4))
        self.assertNotEqual(self.log(2000, seed=4), self.log(2000, seed=5))
        self.assertEqual(self.log(4000, seed=4)[:50], self.log(2000, seed=4)[:50])

    def test_wrong_logs_are_found(self):
        """The checker is checked: each of these changes makes a log that no game can have."""
        lines = self.log(60000)
        kinds = {
            "tells": 'You tell the (.+) " (.+) wants to see you ! "',
            "asks": 'The (.+) says " can you tell the (.+) that the (.+) wants to see them . "',
            "arrives": "The (.+) arrives from the (.+) [.]",
            "leaves": "The (.+) leaves for the (.+) [.]",
            "goes": "You go to the (.+) [.]",
            "sees": "You see (.+) [.]",
            "paths": "Paths lead to (.+) [.]",
            "people": "People here : (.+) [.]",
        }
        found = {kind: [i for i, line in enumerate(lines) if re.fullmatch(form, line)] for kind, form in kinds.items()}
        everybody, rooms = set(world(VILLAGE).start), set(world(VILLAGE).exits)

        def other(line, names, draw):
            """The line with one of the names in it replaced by one that is not."""
            there = [name for name in names if f" {name} " in line]
            return line.replace(f" {draw.choice(there)} ", f" {draw.choice(sorted(names - set(there)))} ", 1)

        draw = random.Random(1)
        changes = [(kind, "left out", lambda i: lines[:i] + lines[i + 1 :]) for kind in ("sees", "paths")]
        changes += [(kind, "twice", lambda i: lines[: i + 1] + lines[i:]) for kind in kinds if kind != "goes"]
        changes += [
            ("tells", "another", lambda i: lines[:i] + [other(lines[i], everybody, draw)] + lines[i + 1 :]),
            ("asks", "another", lambda i: lines[:i] + [other(lines[i], everybody, draw)] + lines[i + 1 :]),
            ("goes", "elsewhere", lambda i: lines[:i] + [other(lines[i], rooms, draw)] + lines[i + 1 :]),
            ("asks", "later", lambda i: lines[:i] + lines[i + 1 : i + 9] + lines[i : i + 1] + lines[i + 9 :]),
            ("tells", "never", lambda i: lines[:i] + lines[i + 1 :]),
            ("asks", "never", lambda i: lines[:i] + lines[i + 1 :]),
            ("arrives", "never", lambda i: lines[:i] + lines[i + 1 :]),
            ("leaves", "never", lambda i: lines[:i] + lines[i + 1 :]),
        ]
        # Each must be found, but for what a log need not show: an order whose target is not met, a room beside this one.
        least = {("asks", "another"): 0.8, ("goes", "elsewhere"): 0.7, ("asks", "later"): 0.5}
        least |= {(kind, "never"): share for kind, share in (("asks", 0.8), ("arrives", 0.5), ("leaves", 0.2))}
        for kind, change, make in changes:
            with self.subTest(kind=kind, change=change):
                places = draw.sample(found[kind][:-30], 20)
                caught = 0
                for i in places:
                    try:
                        Checker(world(VILLAGE)).check(make(i))
                    except WrongLog:
                        caught += 1
                print(f"{kind} {change}: {caught} of {len(places)} found")
                self.assertGreaterEqual(caught, least.get((kind, change), 1) * len(places))


@unittest.skipUnless(LIGHT.exists() and CHATTER.exists(), f"no world file {LIGHT}, or no {CHATTER}: nothing was checked")
class Light(LogTest):
    def test_the_papers_world(self):
        """As the paper: some 950 words between order and execution. Of a million words, three standard errors are 9 %."""
        checker = Checker(world(LIGHT)).check(self.log(1000000, f"world={LIGHT}", f"chatter={CHATTER}"))
        figures = summary(checker)
        print(figures)
        self.assertLess(abs(figures["mean"] - 950), 90)
        self.assertGreater(figures["executions"], 1000)

    def test_how_often_things_happen(self):
        self.check_chances(Chances(world(LIGHT)), self.log(150000, f"world={LIGHT}", *self.marks()))


class Show(ProgramTest):
    def test_every_task(self):
        for task in TASKS:
            with self.subTest(task=task):
                small = {"collision": "collision.test_steps=500", "long_copy": "long_copy.gap=20"}.get(task)
                show = ("task", "show", task, "--length", 60, *(["--set", small] if small else []))
                shown = self.succeed(*show, "--seed", 3).stdout
                self.assertEqual(self.succeed(*show, "--seed", 3).stdout, shown)
                self.assertNotEqual(self.succeed(*show, "--seed", 4).stdout, shown)
                self.assertGreaterEqual(len(shown.split()), 45)
        self.assertRegex(self.succeed("task", "show", "copy").stdout, r"^<bos> ([a-z] )+\| \[[a-z]\] [a-z]")
        self.assertRegex(self.succeed("task", "show", "long_copy").stdout, r"B \? \[A\] A")
        self.assertIn("nothing is asked in these", self.succeed("task", "show", "collision", "--length", 60).stderr)
        short = self.succeed("task", "show", "parity", "--length", 100_000, "--set", "parity.test_sequences=3")
        self.assertRegex(short.stderr, r"^lapse: note: the test set ends here, after \d+ tokens; section \[parity\] has its size\n$")
        self.assertRegex(self.succeed("task", "show", "collision", "--length", 9000).stdout, r"ask\d ask\d \[[1-4]\]\s+row")
        self.assertRegex(self.succeed("task", "show", "instruction", "--seed", 3).stdout, r"^You are the [a-z ]+ in the ")

    def test_every_environment(self):
        for name in ENVIRONMENTS:
            with self.subTest(environment=name):
                shown = self.succeed("task", "show", name, "--length", 5, "--seed", 3).stdout
                self.assertEqual(len(re.findall(r"^step \d+\n(  \|.*\|\n)+  \w+: reward ", shown, re.M)), 5)
                self.assertEqual(self.succeed("task", "show", name, "--length", 5, "--seed", 3).stdout, shown)
        whole = self.succeed("task", "show", "corridor", "--set", "corridor.longest=5").stdout
        self.assertRegex(whole, r"the episode ends: success [01]\n\n$")

    def test_refused(self):
        self.refuse("task", says="a verb is required")
        self.refuse("task", "shwo", says=["'shwo'", "did you mean 'show'"])
        self.refuse("task", "show", says="required")
        self.refuse("task", "show", "instructoin", says=["no 'instructoin'", "did you mean 'instruction'"])
        self.refuse("task", "show", "coridor", says="did you mean 'corridor'")
        self.refuse("task", "show", "copy", "--length", 0, says="--length")
        self.refuse("task", "show", "copy", "--set", "parity.bits=3", says="parity")
        show = ("task", "show", "instruction", "--set")
        self.refuse(*show, "instruction.world=/none.json", says=["instruction.world", "no file /none.json", "scripts/data.sh"])
        self.refuse(*show, "instruction.chatter=/none.txt", says=["instruction.chatter", "no file /none.txt"])
        text = self.write("world.json", '{"rooms": []}')
        self.refuse(*show, f"instruction.world={text}", says=[str(text), 'no "agents"', "LIGHT"])
        for bad in ("rounds=0", "chatter_words=-1", "valid_words=1", "vocabulary=2"):
            self.refuse(*show, f"instruction.{bad}", says=f"instruction.{bad.split('=')[0]}")


if __name__ == "__main__":
    unittest.main()
