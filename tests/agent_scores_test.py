"""What `lapse eval` and training say of agents in every environment: scores that are shares (corridor, t_maze) and that are not (Portal's
rooms, returns with penalties), computed again from the episodes that `lapse inspect` shows; the same in TensorBoard; two methods, and one at inference."""

import json
import math
import re
import statistics
import unittest

import numpy
from inspect_test import Page
from program import TINY, ProgramTest, merged, metrics, shared_folder, train_run
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

SHORT = {
    "train": {"batch": 4, "block": 10, "updates": 12, "log_every": 3, "validate_every": 6},
    "actor_critic": {"validation_episodes": 5},
}
WORLDS = {  # options, the score, and its best
    "corridor": ({"longest": 5}, "success", 1),
    "portal": ({"rooms": 4, "most_steps": 40}, "rooms", 4),
    "t_maze": ({"length": 6}, "success", 1),
}
SHARES = {"corridor": {"success", "return"}, "portal": set(), "t_maze": {"success"}}  # 0 or 1 by the rules; else a mean
METHODS = ("expire_span", "fixed_span")
EPISODES = 24
DEVIATIONS = statistics.NormalDist().inv_cdf(0.975)

shared = None


def setUpModule():
    global shared
    shared = shared_folder()
    for world, (options, _, _) in WORLDS.items():
        for method in METHODS:
            run = {"data": {"task": world}, world: options, "forgetting": {"method": method}}
            train_run(shared / f"{world}-{method}", merged(TINY, SHORT, run))


def of_mean(values):
    half = DEVIATIONS * statistics.stdev(values) / len(values) ** 0.5
    return statistics.mean(values) - half, statistics.mean(values) + half


def of_share(values):
    """Wilson's: the shares p' from which the one found is 1.96 standard errors away."""
    n, found = len(values), statistics.mean(values)
    away = lambda share: (found - share) ** 2 * n - DEVIATIONS**2 * share * (1 - share)
    ends = []
    for inside, outside in ((found, 0.0), (found, 1.0)):  # away() is below 0 between the ends
        for _ in range(60):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if away(middle) <= 0 else (inside, middle)
        ends.append(inside)
    return tuple(ends)


class Scores(ProgramTest):
    def episodes(self, run, *options):
        """(score, return, steps) of each, as the page's headings have them."""
        page = self.folder / "page.html"
        self.succeed("inspect", run, "-o", page, "--episodes", EPISODES, "--tokens", 10000, *options)
        headings = json.loads(Page(page.read_text()).scripts[0])["headings"]
        found = [re.fullmatch(r"episode \d+ · \w+ (\S+) · return (\S+) · (\d+) steps", heading) for heading in headings]
        return [[float(number) for number in one.groups()] for one in found]

    def check(self, run, score, best, *options, shares):
        most_steps = self.succeed_json("info", run)["environment"]["most_steps"]
        said = self.succeed_json("eval", run, "--episodes", EPISODES, *options)
        columns = dict(zip((score, "return", "episode_steps"), zip(*self.episodes(run, *options))))
        self.assertEqual(said["episodes"], EPISODES)
        self.assertEqual({len(values) for values in columns.values()}, {EPISODES})
        self.assertEqual(said["steps"], sum(columns["episode_steps"]))
        for name, values in columns.items():
            low, high = of_share(values) if name in shares else of_mean(values)
            least, most = {score: (0, best), "episode_steps": (1, most_steps)}.get(name, (-math.inf, math.inf))
            low, high = max(low, least), min(high, most)  # no further than a mean can lie
            # A heading has six digits.
            self.assertAlmostEqual(said[name], statistics.mean(values), delta=1e-5, msg=name)
            self.assertAlmostEqual(said[f"{name}_low"], low, delta=1e-5, msg=name)
            self.assertAlmostEqual(said[f"{name}_high"], high, delta=1e-5, msg=name)
        return said, columns

    def test_means_and_intervals(self):
        for world, (_, score, best) in WORLDS.items():
            for method in METHODS:
                for options in ((), ("--greedy",)):
                    with self.subTest(world, method=method, options=options):
                        said, columns = self.check(shared / f"{world}-{method}", score, best, *options, shares=SHARES[world])
                        self.assertEqual((said["environment"], said["method"]), (world, method))
                        self.assertTrue(options or len({*zip(columns[score], columns["return"])}) > 1, "all alike: nothing was compared")

    def test_what_is_a_share_is_decided_by_the_rules(self):
        """An agent that always goes right has returns of 0 and 1, with a penalty that was never due too: no share."""
        run = self.folder / "right"
        quick = {"train": {"batch": 32, "updates": 30, "validate_every": 0}, "optimiser": {"rate": 0.02}, "forgetting": {"method": "fixed_span"}}
        train_run(run, merged(TINY, SHORT, quick, {"data": {"task": "t_maze"}, "t_maze": {"length": 2}}))
        _, columns = self.check(run, "success", 1, "--greedy", shares={"success"})
        self.assertLessEqual(set(columns["return"]), {0, 1})
        self.check(run, "success", 1, "--greedy", "--set", "t_maze.penalty=0", shares={"success", "return"})

    def test_another_method_at_inference(self):
        for world, (_, score, best) in WORLDS.items():
            with self.subTest(world):
                run = shared / f"{world}-fixed_span"
                said, _ = self.check(run, score, best, "--method", "local", "--budget", 2, shares=SHARES[world])
                self.assertEqual(said["method"], "local")
                self.assertLessEqual(max(layer["memory_max"] for layer in said["layers"]), 2)

    def test_tensorboard_has_the_scores(self):
        for world, (_, score, _) in WORLDS.items():
            for method in METHODS:
                run = shared / f"{world}-{method}"
                events = EventAccumulator(str(run / "tensorboard"))
                events.Reload()
                for split in ("train", "valid"):
                    for name in (score, "return"):
                        with self.subTest(world, method=method, tag=f"{split}/{name}"):
                            shown = {event.step: event.value for event in events.Scalars(f"{split}/{name}")}
                            lines = [line for line in metrics(run) if line["split"] == split and name in line]
                            self.assertEqual(shown, {line["update"]: numpy.float32(line[name]) for line in lines})
                            self.assertGreater(len(shown), 1)


if __name__ == "__main__":
    unittest.main()
