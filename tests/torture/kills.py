"""SIGKILL at random moments, again and again; what is resumed must end as what nobody disturbed, to the bit.

    .venv/bin/python tests/torture/kills.py [--kills 1000] [--seed 1] [--json FILE] [KIND ...]

Kinds: training with every trainable method on streams; windows, documents, words, an encoder-decoder; tasks and environments; the
search of `lapse prune`; the training of a tokenizer; two processes under torchrun (`parallel`: its own number of kills, --parallel).
Compared are all lines of metrics but times, all tensors of the last checkpoint and its state, or the bytes of what is written.
"""

import argparse
import json
import pathlib
import random
import shutil
import signal
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from agent_run import CORRIDOR  # noqa: E402
from parallel_test import Parallel  # noqa: E402
from program import TINY, ProgramTest, english, merged, start, toml  # noqa: E402
from prune_test import SELECTIVE  # noqa: E402
from same_run import ADAPTIVE, DOCUMENTS, FIXED, LONG, METHODS, RANDOM, SHORT, KilledRun  # noqa: E402
from span_cli_test import SPANS  # noqa: E402
from task_cli_test import TASKS  # noqa: E402


def training_kinds():
    """name -> (text, or None; changes of the tiny run)"""
    for method, options in METHODS.items():
        yield f"streams, {method}", (LONG, {"forgetting": {"method": method}}, options)
    yield "streams, all that is random", (LONG, RANDOM)
    yield "streams, SGD", (LONG, FIXED)
    yield "streams, many passes", (SHORT,)
    yield "windows", (LONG, SELECTIVE, {"data": {"path": "text.txt"}, "train": {"updates": 60}})
    yield "documents", (LONG, DOCUMENTS)
    yield "words, adaptive ends", (LONG, ADAPTIVE)
    yield "encoder-decoder", (LONG, SPANS, {"train": {"updates": 60}})
    for task, (options, block) in TASKS.items():
        yield task, (None, {"data": {"task": task}, task: options, "train": {"block": block, "validation_blocks": 2}})
    for world in ("corridor", "portal", "t_maze"):
        method = {"corridor": "expire_span", "portal": "selective_attention", "t_maze": "adaptive_span"}[world]
        yield world, (None, CORRIDOR, {"data": {"task": world}, "forgetting": {"method": method}, "train": {"updates": 60}})


class Command(ProgramTest):
    """A command that is killed while it works, and then run to its end."""

    def check_killed(self, kills, seed):
        draw = random.Random(seed)
        self.prepare()
        begun = time.monotonic()
        whole = self.ended()
        took, killed = time.monotonic() - begun, 0
        while killed < kills:
            self.prepare()
            for _ in range(3):
                process = start(*self.command, cwd=self.work)
                time.sleep(draw.uniform(0, took))
                process.kill()
                process.communicate()
                killed += process.returncode == -signal.SIGKILL
            self.assertEqual(self.ended(), whole)
        return killed

    def prepare(self):
        """A fresh folder, of one name: checkpoints hold paths."""
        self.work = self.folder / "work"
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        (self.work / "text.txt").write_text(english(60000))

    def ended(self):
        self.succeed(*self.command, cwd=self.work)
        self.assertEqual(list(self.work.rglob("*.partial")), [])
        return [(self.work / name).read_bytes() for name in self.files]


class Tokenizer(Command):
    command = ("tokenizer", "train", "--data", "text.txt", "--vocabulary=320", "--out=a.model")
    files = ("a.model",)


class Prune(Command):
    command = ("prune", "run", "--tokens=2000", "--step=4", "--threshold=9", "--out=small.safetensors")
    files = ("small.safetensors", "run/prune.json")

    def prepare(self):
        super().prepare()
        config = merged(TINY, SELECTIVE, {"data": {"path": "text.txt"}, "train": {"updates": 4}})
        (self.work / "config.toml").write_text(toml(config))
        self.succeed("train", "config.toml", "--out", "run", "--quiet", cwd=self.work)


def kill_trainings(kills, seed, kind):
    done = 0
    while done < kills:
        case = KilledRun()
        case.setUp()
        now = min(8, kills - done)
        try:
            case.check_killed(now, seed + done, *kind)
        finally:
            case.doCleanups()
        done += now
    return done


def kill_commands(kills, seed, kind):
    case = kind()
    case.setUp()
    try:
        return case.check_killed(kills, seed)
    finally:
        case.doCleanups()


def kill_ranks(kills, seed, _):
    """One of two processes at a time; torchrun starts both again."""
    draw, done = random.Random(seed), 0
    while done < kills:
        case = Parallel()
        case.setUp()
        try:
            done += case.check_restarts(min(10, kills - done), lambda: time.sleep(draw.uniform(0, 0.3)), draw.randrange)
        finally:
            case.doCleanups()
    return done


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="those whose name contains one of these; all without")
    parser.add_argument("--kills", type=int, default=1000, help="in all, shared by the kinds")
    parser.add_argument("--parallel", type=int, default=50, help="of processes under torchrun")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    kinds = {name: (kill_trainings, kind) for name, kind in training_kinds()}
    kinds |= {"prune": (kill_commands, Prune), "tokenizer": (kill_commands, Tokenizer)}
    wanted = lambda name: not arguments.kinds or any(word in name for word in arguments.kinds)
    each = -(-arguments.kills // max(1, sum(map(wanted, kinds))))
    kinds["parallel"] = (kill_ranks, None)
    results, begun, spent = {}, time.time(), 0
    if arguments.json and arguments.kinds and arguments.json.exists():  # the others stay
        told = json.loads(arguments.json.read_text())
        results, spent = told["kinds"], told["seconds"]
    for name, (kill, kind) in kinds.items():
        if not wanted(name):
            continue
        results[name] = kill(arguments.parallel if name == "parallel" else each, arguments.seed, kind)
        print(f"{name:32} {results[name]:4} kills, the same to the bit", flush=True)
        if arguments.json:
            told = {"seed": arguments.seed, "kills": sum(results.values()), "seconds": round(spent + time.time() - begun), "kinds": results}
            arguments.json.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
