"""Several processes that train together make the bits of one, and none waits in vain for another."""

import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import unittest
from pathlib import Path

from program import PROGRAM, ProgramTest, checkpoints, english, environment, lapse, merged, metrics, start, toml
from same_run import ADAPTIVE, DOCUMENTS, FREE, METHODS, RANDOM, newest_checkpoint

LINES = FREE | {"memory_of_processes", "exchange_ms_per_update"}
TEXT = english(6000)
PLAIN = {"train": {"batch": 12}}
WORLD = {
    "data": {"task": "corridor"},
    "corridor": {"longest": 8},
    "train": {"batch": 12, "updates": 12, "validate_every": 6},
    "actor_critic": {"validation_episodes": 10},
}


def free_port():
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        return some.getsockname()[1]


class Parallel(ProgramTest):
    def setUp(self):
        super().setUp()
        self.text = self.write("text.txt", TEXT)

    def configure(self, *changes, generated=False):
        if not generated:
            return self.config(self.text, *changes)
        some = merged({"model": {"width": 16, "layers": 2, "heads": 2}, "forgetting": {"method": "expire_span"},
                       "expire_span": {"max_span": 16, "ramp": 4}, "train": {"block": 8, "log_every": 3, "threads": 1}}, *changes)
        return self.write("config.toml", toml(some))

    def ranks(self, size, *arguments, of_rank=lambda rank: ()):
        """The processes that torchrun would start."""
        port, started = free_port(), []
        for rank in range(size):
            place = {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            started.append(start(*arguments, *of_rank(rank), env=environment() | place | {"GLOO_SOCKET_IFNAME": "lo"}))
            self.addCleanup(started[-1].kill)
        return started

    def end(self, started, status=0):
        """What each said on stdout and stderr."""
        said = [process.communicate(timeout=100) for process in started]
        self.assertEqual([process.returncode for process in started], [status] * len(started), said)
        return said

    def together(self, size, config, out, *more):
        return self.end(self.ranks(size, "train", config, "--out", out, "--quiet", *more))

    def recorded(self, run):
        return [{key: value for key, value in line.items() if key not in LINES} for line in metrics(run)]

    def assert_same_run(self, ours, theirs):
        for line, other in zip(self.recorded(ours), self.recorded(theirs), strict=True):
            self.assertEqual(line, other)
        self.assertEqual(newest_checkpoint(ours), newest_checkpoint(theirs))

    def check_bits(self, size, config):
        alone, shared = self.folder / f"alone{size}", self.folder / f"shared{size}"
        self.succeed("train", config, "--out", alone, "--quiet", "--set", f"train.parts={size}")
        self.together(size, config, shared)
        self.assert_same_run(shared, alone)

    def test_every_method_has_the_bits_of_one_process(self):
        for method, options in METHODS.items():
            with self.subTest(method=method):
                self.setUp()
                self.check_bits(2, self.configure(PLAIN, {"forgetting": {"method": method}}, options))

    def test_three_and_four_processes_draws_documents_and_words(self):
        twelve = {"train": {"batch": 12, "parts": 1}}
        for size, change in ((3, RANDOM), (4, DOCUMENTS), (2, {**ADAPTIVE, "data": {"unit": "word", "split": [0.6, 0.3, 0.1]}})):
            with self.subTest(size=size):
                self.setUp()
                self.check_bits(size, self.configure(change, twelve))

    def test_tasks_and_environments(self):
        copy = {"data": {"task": "copy"}, "train": {"batch": 12, "block": 50, "updates": 12, "validate_every": 6, "validation_blocks": 2}}
        for change in (copy, WORLD):
            with self.subTest(task=change["data"]["task"]):
                self.setUp()
                self.check_bits(2, self.configure(change, generated=True))

    def test_resumed_by_as_many_or_another_number(self):
        config = self.configure(PLAIN)
        whole, broken = self.folder / "whole", self.folder / "broken"
        self.together(2, config, whole)
        for size, same in ((2, True), (3, False), (1, False)):
            with self.subTest(size=size):
                broken = self.folder / f"broken{size}"
                self.together(2, config, broken, "--set", "train.updates=10")
                self.together(size, config, broken, "--resume")
                if same:
                    self.assert_same_run(broken, whole)
                for line, other in zip(metrics(broken), metrics(whole), strict=True):
                    self.assertAlmostEqual(line["loss"], other["loss"], delta=1e-5)

    def newest(self, run):
        return next(iter(checkpoints(run)), None)

    def wait_for_another(self, run, process, than=None):
        """Until there is another checkpoint, or the process ends."""
        while self.newest(run) == than and process.poll() is None:
            time.sleep(0.01)

    def test_ctrl_c_on_any_rank_saves_once_and_ends_all(self):
        config = self.configure(PLAIN, {"train": {"updates": 400, "checkpoint_every": 5, "validate_every": 0}})
        whole, broken = self.folder / "whole", self.folder / "broken"
        self.together(2, config, whole)
        for rank in (1, 0):
            newest = self.newest(broken)
            started = self.ranks(2, "train", config, "--out", broken, "--quiet", "--resume")
            self.wait_for_another(broken, started[0], newest)
            started[rank].send_signal(signal.SIGINT)
            self.end(started, 130)
        self.together(2, config, broken, "--resume")
        self.assert_same_run(broken, whole)

    def lost(self, hurt, patience):
        """What the other rank says after `hurt` of rank 1."""
        config = self.configure(PLAIN, {"train": {"updates": 100000, "validate_every": 0}})
        run = self.folder / "run"
        first, second = self.ranks(2, "train", config, "--out", run, "--quiet", "--patience", patience)
        self.wait_for_another(run, first)
        hurt(second)
        said = first.communicate(timeout=60)[1]
        second.kill(), second.communicate()
        self.assertEqual(first.returncode, 1)
        return said

    def test_a_write_to_a_rank_that_ended_is_no_signal(self):
        config = self.configure(PLAIN, {"train": {"updates": 100000, "validate_every": 0}})
        run = self.folder / "run"
        ranks = self.ranks(2, "train", config, "--out", run, "--quiet")
        self.wait_for_another(run, ranks[0])
        for rank in ranks:
            status = Path(f"/proc/{rank.pid}/status").read_text()
            ignored = int(re.search(r"^SigIgn:\s*(\w+)$", status, re.MULTILINE)[1], 16)
            self.assertTrue(ignored >> (signal.SIGPIPE - 1) & 1)
        ranks[1].send_signal(signal.SIGINT)
        self.end(ranks, 130)

    def test_a_rank_that_dies_is_named(self):
        self.assertRegex(self.lost(lambda process: process.kill(), 100), r"^lapse: error: rank 0: lost rank 1, .*\n$")

    def test_a_rank_that_hangs_is_named(self):
        begun = time.time()
        said = self.lost(lambda process: process.send_signal(signal.SIGSTOP), 2)
        self.assertRegex(said, r"^lapse: error: rank 0: lost rank 1, which ended or did not answer for 2 s.*\n$")
        self.assertLess(time.time() - begun, 60)

    def test_a_rank_that_disagrees_is_named(self):
        config = self.configure(PLAIN)
        other = lambda rank: ("--set", "optimiser.rate=0.5") if rank == 2 else ()
        for _, errors in self.end(self.ranks(3, "train", config, "--out", self.folder / "run", "--quiet", of_rank=other), 1):
            self.assertRegex(errors, r"rank 2 is about to do something else: rate = 0\.5 where rank 0 has rate = 0\.003")
        text = self.write("other.txt", english(6000, seed=2))
        other = lambda rank: ("--data", text) if rank == 1 else ()
        for _, errors in self.end(self.ranks(2, "train", config, "--out", self.folder / "run2", "--quiet", of_rank=other), 1):
            self.assertIn("rank 1 is about to do something else", errors)

    def test_what_cannot_be_shared(self):
        config = self.configure({"train": {"batch": 3}})
        for _, errors in self.end(self.ranks(2, "train", config, "--out", self.folder / "run"), 1):
            self.assertIn("train.batch = 3 does not divide into 2 parts", errors)
        config = self.configure({"train": {"batch": 12, "parts": 3}})
        for _, errors in self.end(self.ranks(2, "train", config, "--out", self.folder / "run"), 1):
            self.assertIn("train.parts = 3 cannot be shared by 2 processes", errors)
        config = self.configure({"train": {"batch": 4, "validation_streams": 1}})
        for _, errors in self.end(self.ranks(2, "train", config, "--out", self.folder / "run"), 1):
            self.assertIn("the validation part: train.validation_streams = 1 is less than the 2 processes", errors)
        alone = lapse("train", config, "--out", self.folder / "run", env=environment() | {"WORLD_SIZE": "2"})
        self.assertRegex(alone.stderr, r"^lapse: error: RANK='' in the environment is no number; .*torchrun\n$")
        alone = lapse("train", config, "--out", self.folder / "run", env=environment() | {"RANK": "1"})
        self.assertRegex(alone.stderr, r"^lapse: error: RANK=1 without WORLD_SIZE: set WORLD_SIZE, .*torchrun does\n$")
        self.assertFalse((self.folder / "run").exists())

    def test_the_first_rank_says_what_is_wrong(self):
        config = self.configure(PLAIN)
        run = self.folder / "run"
        self.succeed("train", config, "--out", run, "--quiet")
        said = self.end(self.ranks(2, "train", config, "--out", run, "--quiet"), 1)
        self.assertIn("there is a run in this folder", said[0][1])
        self.assertIn("rank 0: ", said[1][1])

    def test_reading_is_shared_too(self):
        run = self.folder / "run"
        self.succeed("train", self.configure(PLAIN), "--out", run, "--quiet")
        alone = self.succeed_json("eval", run)
        first, second = self.end(self.ranks(2, "eval", run, "--json"))
        self.assertEqual(second, ("", ""))
        shared = json.loads(first[0])
        self.assertAlmostEqual(shared["bpb"], alone["bpb"], delta=1e-6)
        self.assertEqual((shared["tokens"], shared["layers"][0]["memory_max"]), (alone["tokens"], alone["layers"][0]["memory_max"]))
        other = self.folder / "other"
        self.succeed("train", self.configure(PLAIN), "--out", other, "--quiet", "--set", "train.seed=7")
        file = checkpoints(other)[0]
        for arguments, words in (((run,), "split = valid"), ((file,), "max_span = 3")):
            of_rank = lambda rank: (() if rank == 0 else ("--split", "valid") if arguments == (run,) else ("--max-span", "3"))
            refused = self.end(self.ranks(2, "eval", *arguments, of_rank=of_rank), 1)
            self.assertRegex(refused[0][1], f"rank 1 is about to do something else: {words} where rank 0 has")
        # Whatever they are named: all read the file that the first rank finds.
        first, _ = self.end(self.ranks(2, "eval", "--json", of_rank=lambda rank: ((run, other)[rank],)))
        self.assertAlmostEqual(json.loads(first[0])["bpb"], alone["bpb"], delta=1e-6)
        refused = self.end(self.ranks(2, "eval", run, "--losses", self.folder / "losses.jsonl"), 1)
        self.assertIn("read in one process", refused[0][1])
        refused = self.end(self.ranks(2, "eval", run, "--choices", self.folder / "questions.jsonl"), 1)
        self.assertIn("--choices reads in one process", refused[0][1])

    def test_memory_is_that_of_a_share(self):
        """A batch that is too much for one process, but not for each of many."""
        config = self.configure({"train": {"batch": 1 << 20, "block": 1024}})
        alone = lapse("train", config, "--out", self.folder / "run")
        needs = lambda said: float(re.search(r"needs at least ([0-9.]+) TB", said)[1])
        for _, errors in self.end(self.ranks(2, "train", config, "--out", self.folder / "run"), 1):
            self.assertAlmostEqual(needs(errors) / needs(alone.stderr), 0.5, delta=0.02)

    def test_episodes_are_shared_too(self):
        run = self.folder / "run"
        self.succeed("train", self.configure(WORLD, generated=True), "--out", run, "--quiet")
        alone = self.succeed_json("eval", run, "--episodes", 21)
        one = json.loads(self.end(self.ranks(3, "eval", run, "--episodes", "1", "--json"))[0][0])
        self.assertEqual((one["episodes"], one["success"]), (1, self.succeed_json("eval", run, "--episodes", 1)["success"]))
        shared = json.loads(self.end(self.ranks(2, "eval", run, "--episodes", "21", "--json"))[0][0])
        for key in ("success", "return", "episodes", "episode_steps"):
            self.assertAlmostEqual(shared[key], alone[key], delta=1e-9)
        refused = self.end(self.ranks(2, "eval", run, of_rank=lambda rank: ("--seed", str(rank))), 1)
        self.assertIn("rank 1 is about to do something else: seed = 1 where rank 0 has seed = 0", refused[0][1])

    def check_restarts(self, kills, pause, choose):
        """Kills one of two processes after each of so many checkpoints; returns how many were there to kill."""
        updates = {"batch": 12, "parts": 2, "updates": 100 * kills, "checkpoint_every": 5}
        config = self.configure(PLAIN, RANDOM, {"train": updates})
        whole, broken = self.folder / "whole", self.folder / "broken"
        self.succeed("train", config, "--out", whole, "--quiet")
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", str(kills),
                   "--monitor-interval", "0.1", "--no-python", PROGRAM, "train", config, "--out", broken, "--quiet", "--resume"]
        with open(self.folder / "log", "w") as log:
            torchrun = subprocess.Popen(command, env=environment() | {"GLOO_SOCKET_IFNAME": "lo"}, stdout=log, stderr=log)
        self.addCleanup(torchrun.kill)
        killed = 0
        for _ in range(kills):
            self.wait_for_another(broken, torchrun, self.newest(broken))
            pause()
            children = subprocess.run(["pgrep", "-P", str(torchrun.pid)], capture_output=True, text=True, check=False).stdout.split()
            if children:
                os.kill(int(children[choose(len(children))]), signal.SIGKILL)
                killed += 1
        self.assertEqual(torchrun.wait(timeout=60 + 60 * kills), 0, (self.folder / "log").read_text())
        self.assert_same_run(broken, whole)
        return killed

    def test_torchrun_restarts_what_was_killed(self):
        turn = itertools.count()
        self.assertEqual(self.check_restarts(3, lambda: None, lambda size: next(turn) % size), 3)


if __name__ == "__main__":
    unittest.main()
