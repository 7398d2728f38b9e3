"""Runs the program as a user would, for the tests that need it. LAPSE_PROGRAM names it."""

import json
import math
import os
import pathlib
import random
import subprocess
import tempfile
import unittest

import starter

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = os.environ.get("LAPSE_PROGRAM", str(ROOT / "build" / "release" / "lapse"))
STARTER = os.environ.get("LAPSE_STARTER")  # tests/starter.cpp as a library; without it, each run is a process from its beginning
TIMEOUT = 120  # seconds: under the sanitizers everything takes its time


def environment():
    # Two tests run at a time: threads that spin while they wait would take the cores from each other.
    return {**os.environ, "OMP_WAIT_POLICY": "passive"}


def start(*arguments, **options):
    """The running process; its output is to be read by the caller."""
    command = [PROGRAM, *map(str, arguments)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment(), **options}
    return subprocess.Popen(command, **options)


def lapse(*arguments, **options):
    """The finished process: returncode, stdout, stderr."""
    if STARTER and options.keys() <= {"cwd"}:
        held = starter.held(PROGRAM, STARTER, TIMEOUT)
        return held.run([str(argument) for argument in arguments], options.get("cwd", os.getcwd()))
    process = start(*arguments, **options)
    try:
        stdout, stderr = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


WORDS = (
    "the of and to in that was his he it with is for as had you not be her on at by which have or from this him but "
    "all she they were my are me one their so an said them we who would been will no when there if more out up into "
    "memory forgets slowly river stone winter garden letter morning captain window silver history"
).split()


def english(size, seed=1):
    """Some `size` bytes of sentences: few words, so that a tiny model has something to learn."""
    draw, sentences, length = random.Random(seed), [], 0
    while length < size:
        words = [draw.choice(WORDS) for _ in range(draw.randint(4, 12))]
        sentence = " ".join(words).capitalize() + draw.choice([". ", ". ", "? ", ".\n"])
        sentences.append(sentence)
        length += len(sentence)
    return "".join(sentences)[:size]


# A model and a run that take a fraction of a second.
TINY = {
    "model": {"width": 16, "layers": 2, "heads": 2, "feed_forward": 32},
    "forgetting": {"method": "expire_span"},
    "expire_span": {"max_span": 32, "ramp": 4, "loss": 1e-4},
    "fixed_span": {"max_span": 12},
    "train": {
        "batch": 2,
        "block": 8,
        "updates": 20,
        "log_every": 5,
        "validate_every": 10,
        "validation_blocks": 8,
        "checkpoint_every": 10,
        "threads": 1,
    },
    "optimiser": {"rate": 3e-3, "warmup": 5},
}


def toml(sections):
    lines = []
    for section, fields in sections.items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in fields.items()]
    return "\n".join(lines) + "\n"


def merged(*configurations):
    result = {}
    for configuration in configurations:
        for section, fields in configuration.items():
            result[section] = {**result.get(section, {}), **fields}
    return result


def shared_folder():
    """A folder for the tests of a module, which goes when they have run: for setUpModule."""
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    return pathlib.Path(folder.name)


def train_run(run, config):
    """Trains a run in its folder; the configuration's relative paths are beside it, and so is its file, RUN.toml."""
    file = run.with_suffix(".toml")
    file.write_text(toml(config))
    done = lapse("train", file.name, "--out", run.name, "--quiet", cwd=run.parent)
    assert done.returncode == 0, done.stderr


def metrics(run):
    """The lines of a run's metrics.jsonl."""
    return [json.loads(line) for line in (pathlib.Path(run) / "metrics.jsonl").read_text().splitlines()]


def checkpoints(run):
    """A run's checkpoints, the newest first."""
    return sorted((pathlib.Path(run) / "checkpoints").glob("*.safetensors"), reverse=True)


class ProgramTest(unittest.TestCase):
    """A folder for each test, with an error checker."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def config(self, text, *changes, name="config.toml"):
        """A TOML file of the tiny run on the file `text`, with changes."""
        return self.write(name, toml(merged(TINY, {"data": {"path": str(text)}}, *changes)))

    def succeed(self, *arguments, **options):
        done = lapse(*arguments, **options)
        self.assertEqual(done.returncode, 0, f"lapse {' '.join(map(str, arguments))}\n{done.stderr}")
        return done

    def succeed_json(self, *arguments):
        return json.loads(self.succeed(*arguments, "--json").stdout)

    def same_memory(self, one, other):
        """Two results of `lapse eval`: the same numbers of each layer, but for the order of their sums."""
        self.assertEqual(len(one["layers"]), len(other["layers"]))
        for a, b in zip(one["layers"], other["layers"]):
            self.assertEqual(list(a), list(b))
            for name in a:
                self.assertTrue(math.isclose(a[name], b[name], rel_tol=1e-6), (name, a[name], b[name]))

    def refuse(self, *arguments, says=(), status=None, warns=False, **options):
        """Runs what cannot work: one clear line on stderr, that has all the words of `says`."""
        done = lapse(*arguments, **options)
        command = f"lapse {' '.join(map(str, arguments))}\n{done.stderr}"
        self.assertGreater(done.returncode, 0, command)  # below 0: a signal, that is a crash
        if status is not None:
            self.assertEqual(done.returncode, status, command)
        lines = done.stderr.splitlines()
        if not warns:
            self.assertEqual(len(lines), 1, command)
        self.assertTrue(lines and lines[-1].startswith("lapse: error: "), command)
        for words in [says] if isinstance(says, str) else says:
            self.assertIn(words, lines[-1])
        return done
