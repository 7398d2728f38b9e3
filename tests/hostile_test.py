"""Files that nobody's program wrote, or that somebody altered on purpose: each is refused with one line that names it."""

import gzip
import json
import math
import os
import shutil
import struct
import subprocess
import unittest

from program import PROGRAM, TINY, ProgramTest, checkpoints, english, environment, lapse, merged, metrics, shared_folder, toml

TEXT = english(4000)
DEEP = "[" * 100_000 + "]" * 100_000
DOTS = "a" + ".a" * 100_000

shared = None  # the folder of a run that the tests copy


def setUpModule():
    global shared
    shared = shared_folder()
    (shared / "text.txt").write_text(TEXT)
    (shared / "config.toml").write_text(toml(merged(TINY, {"data": {"path": str(shared / "text.txt")}})))
    done = lapse("train", shared / "config.toml", "--out", shared / "run")
    assert done.returncode == 0, done.stderr


class Parts:
    """A safetensors file taken apart: `tensors`, name -> [dtype, shape, bytes], and `metadata`."""

    def __init__(self, path):
        content = path.read_bytes()
        (size,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + size])
        self.metadata = header.pop("__metadata__")
        del self.metadata["lapse.checksum"]  # whoever alters a file on purpose leaves it out
        data = content[8 + size :]
        self.tensors = {
            name: [entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])]] for name, entry in header.items()
        }

    def write(self, path):
        header, data = {"__metadata__": self.metadata}, b""
        for name, (dtype, shape, content) in self.tensors.items():
            offsets = [len(data), len(data) + len(content)]
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
            data += content
        text = json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class HostileTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.run_folder = self.folder / "run"
        shutil.copytree(shared / "run", self.run_folder)
        self.newest, older = checkpoints(self.run_folder)
        older.unlink()

    def parts(self):
        return Parts(checkpoints(shared / "run")[0])

    def altered(self, **metadata):
        parts = self.parts()
        parts.metadata.update(metadata)
        parts.write(self.newest)

    def resume(self):
        updates = ("--set", "train.updates=22")
        return ("train", shared / "config.toml", "--out", self.run_folder, "--resume", "--quiet", *updates)

    def refuse_checkpoint(self, *arguments, says):
        self.refuse(*arguments, says=[str(self.newest), *([says] if isinstance(says, str) else says)], status=1)


class Weights(HostileTest):
    def fill(self, value, start="weight."):
        parts = self.parts()
        for name, tensor in parts.tensors.items():
            if name.startswith(start):
                tensor[2] = struct.pack("<f", value) * (len(tensor[2]) // 4)
        parts.write(self.newest)

    def test_what_is_not_finite_is_named(self):
        page = self.folder / "page.html"
        for value in (math.nan, math.inf):
            self.fill(value, "weight.layers.1.key")
            for arguments in (("eval", self.newest), ("generate", self.newest), ("info", self.newest), self.resume()):
                self.refuse_checkpoint(*arguments, says=["'weight.layers.1.key'", "not finite"])
            self.refuse_checkpoint("inspect", self.newest, "--out", page, says="'weight.layers.1.key'")
            self.assertFalse(page.exists())
        self.fill(math.nan, "optimiser.exp_avg.layers.0.key")
        self.refuse_checkpoint(*self.resume(), says=["'optimiser.exp_avg.layers.0.key'", "not finite"])

    def test_a_loss_that_is_not_finite(self):
        self.fill(3e38)
        done = self.refuse("eval", self.newest, says="the loss is nan", warns=True, status=1)
        self.assertEqual(done.stdout, "")
        self.refuse("eval", self.newest, "--json", says="the loss is nan", status=1)
        page = self.folder / "page.html"
        self.refuse("inspect", self.newest, "--out", page, says="the loss is nan", status=1, warns=True)
        self.assertFalse(page.exists())
        for temperature in (0, 1):
            self.refuse("generate", self.newest, "--temperature", temperature, "--json", says="no finite probabilities")

    def test_more_than_the_configuration_has(self):
        for name in ("weight.layers.2.query", "weight.layers.0.other", "other", "memory.1.clock", "memory.0.2.offsets"):
            parts = self.parts()
            parts.tensors[name] = parts.tensors["weight.layers.0.query"]
            parts.write(self.newest)
            self.refuse_checkpoint("info", self.newest, says=f"'{name}'")
        self.altered(config=self.parts().metadata["config"].replace("layers = 2\n", "layers = 1\n"))
        self.refuse_checkpoint("eval", self.newest, says="'weight.layers.1.")


class State(HostileTest):
    def refuse_state(self, says, arguments=None, **fields):
        state = json.loads(self.parts().metadata["state"])
        for path, value in fields.items():
            *sections, key = path.split("__")
            inner = state
            for section in sections:
                inner = inner[section]
            inner[key] = value
        self.altered(state=json.dumps(state))
        self.refuse_checkpoint(*(arguments or self.resume()), says=says)

    def test_fields(self):
        for value in (-1, 1.5, "3", None, 10**9, 10**30):
            self.refuse_state(["its state: 'update' must be a whole number"], update=value)
        self.refuse_state("'update' must be", ("info", self.newest), update=-1)
        self.refuse_state("'history' must be", ("info", self.newest), history=[{"loss": "low"}])
        self.refuse_state("'streams.position' must be", streams__position=1.5)
        self.refuse_state("cannot resume at token 1000000", streams__position=1000000)
        self.refuse_state("'streams.random' must be", streams__random=-1)
        self.refuse_state("'sums.loss' must be a number", sums__loss=None)
        self.refuse_state("'validation_due' must be true or false", validation_due=1)
        self.refuse_state("'streams' must be an object", streams=[])

    def test_what_is_no_json(self):
        for state in ("", "{", "\x00"):
            self.altered(state=state)
            self.refuse_checkpoint("info", self.newest, says="its state: not valid JSON")
        self.altered(state='{"update": 20, "history": %s}' % DEEP)
        self.refuse_checkpoint("info", self.newest, says="levels of JSON")

    def test_steps_and_times(self):
        for name, values in {"optimiser.steps": (-1,), "memory.0.clock": (2**62, 2**62)}.items():
            parts = self.parts()
            parts.tensors[name][2] = struct.pack(f"<{len(values)}q", *values)
            parts.write(self.newest)
            self.refuse_checkpoint(*self.resume(), says="")


class Metadata(HostileTest):
    def test_vocabulary(self):
        for vocabulary in ("{", "[]", '{"unit": "line"}', '{"unit": "subword", "model": "*"}', f'{{"a": {DEEP}}}'):
            self.altered(vocabulary=vocabulary)
            self.refuse_checkpoint("eval", self.newest, says="its vocabulary: ")
        self.altered(vocabulary='{"unit": "token", "tokens": ["a"]}')
        self.refuse_checkpoint("eval", self.newest, says="disagree")

    def test_configuration(self):
        config = self.parts().metadata["config"]
        self.altered(config=f"{config}\n{DOTS} = 1\n")
        self.refuse_checkpoint("eval", self.newest, says="its configuration:")
        self.altered(config=config.replace('"relative"', '"absolute"'))
        self.refuse_checkpoint("eval", self.newest, says="its configuration: model.positions")
        self.altered(config=config.replace("windows = false", "windows = true"))
        self.refuse_checkpoint("eval", self.newest, says="windows")

    def test_windows_from_a_run_of_streams(self):
        change = ("--set", "data.windows=true", "--set", f"train.from={self.run_folder}")
        self.refuse("train", shared / "config.toml", "--out", self.folder / "out", *change, says="data.windows")
        self.assertFalse((self.folder / "out").exists())


class Texts(HostileTest):
    def test_toml_that_is_too_deep(self):
        for content in (f"\n{DOTS} = 1", f"\n[{DOTS}]", "\na = " + "[" * 100_000, "\na = " + "{a = " * 100_000):
            path = self.write("deep.toml", content)
            self.refuse("train", path, "--out", self.folder / "out", says="deep.toml:2: ", status=1)
        for value in (f"{{{DOTS[:60000]} = 1}}", "[" * 60000):
            change = ("--set", f"train.batch={value}")
            self.refuse("train", shared / "config.toml", "--out", self.folder / "out", *change, says="train.batch: ")
        path = self.write("long.toml", "#" * 20_000_000)
        self.refuse("train", path, "--out", self.folder / "out", says="long.toml: larger than", status=1)

    def test_what_has_no_end(self):
        for device in ("/dev/zero", "/dev/urandom"):
            self.refuse("eval", self.run_folder, "--data", device, says=[device, "device"])
            self.refuse("train", device, "--out", self.folder / "out", says=[device, "device"])
        zeros = subprocess.Popen(["cat", "/dev/zero"], stdout=subprocess.PIPE)
        done = lapse("train", "/dev/stdin", "--out", self.folder / "out", stdin=zeros.stdout)
        zeros.stdout.close()
        zeros.wait()
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^lapse: error: /dev/stdin: larger than [^\n]*\n$")

    def test_gzip_bombs(self):
        bomb = self.write("bomb.gz", gzip.compress(b"a" * 2_000_000) * 80)
        self.refuse("eval", self.run_folder, "--data", bomb, says=["bomb.gz", "gzip", "larger than"])

    def test_a_pipe_is_a_text(self):
        same = self.succeed_json("eval", self.run_folder, "--data", shared / "text.txt")
        text = subprocess.Popen(["cat", str(shared / "text.txt")], stdout=subprocess.PIPE)
        done = lapse("eval", self.run_folder, "--data", "/dev/stdin", "--json", stdin=text.stdout)
        text.stdout.close()
        text.wait()
        self.assertEqual(json.loads(done.stdout)["loss"], same["loss"])

    def test_streams_are_what_is_too_many(self):
        done = self.refuse("eval", self.run_folder, "--streams", 3000, says=["--streams 3000", "fewer streams"])
        self.assertNotIn("batch", done.stderr)


class Paths(HostileTest):
    def test_loops_and_names_that_are_too_long(self):
        loop = self.folder / "loop"
        loop.symlink_to("loop")
        for path, words in ((loop, "Too many levels"), (self.folder / ("n" * 300), "File name too long")):
            for verb in ("info", "eval", "generate", "prune"):
                self.refuse(verb, path, says=[f"'{path}'", words], status=1)
            self.refuse("plot", path, "--out", self.folder / "a.png", says=[f"'{path}'", words])
            self.refuse("eval", self.run_folder, "--data", path, says=[f"'{path}'", words])
            self.refuse("inspect", self.run_folder, "--out", path, says=[f"'{path}'", words])
            self.refuse("tokenizer", "train", "--data", shared / "text.txt", "--out", path, says=[f"'{path}'", words])
            self.refuse("train", shared / "config.toml", "--out", path, says=[f"'{path}'", words])

    def test_what_stands_in_a_run(self):
        (self.run_folder / "metrics.jsonl").unlink()
        (self.run_folder / "metrics.jsonl").mkdir()
        self.refuse(*self.resume(), says=["metrics.jsonl", "not a file"])
        (self.run_folder / "metrics.jsonl").rmdir()
        (self.run_folder / "metrics.jsonl").write_text('{"update": 1, "split": %s}\n[]\n{"update": 1e999}\n' % DEEP)
        self.succeed(*self.resume())
        lines = [(line["update"], line["split"]) for line in metrics(self.run_folder)]
        self.assertEqual(lines, [(22, "train"), (22, "valid")])

    def test_metrics_that_nobody_can_draw(self):
        for line in ('{"update": 1, "split": "train", "loss": [1]}', '{"update": 1, "split": "train", "layers": 7}', "[]"):
            (self.run_folder / "metrics.jsonl").write_text(line + "\n")
            self.refuse("plot", self.run_folder, "--out", self.folder / "a.png", says="has no line of training")


class Descriptors(HostileTest):
    def test_progress_goes_into_no_file_of_the_run(self):
        """Without standard input and error, files that are opened would get their numbers."""
        out = self.folder / "out"
        command = [PROGRAM, "train", shared / "config.toml", "--out", out]
        done = subprocess.run(["sh", "-c", '"$@" 0<&- 2>&-', "sh", *map(str, command)], env=environment())
        self.assertEqual(done.returncode, 0)
        files = [path for path in out.rglob("*") if path.is_file()]
        self.assertGreater(len(files), 3)
        for path in files:
            self.assertNotIn(b"parameters, ", path.read_bytes(), path)  # the first line of progress

    def test_an_output_that_is_closed_is_an_error(self):
        done = subprocess.run(
            ["sh", "-c", '"$@" >&-', "sh", PROGRAM, "info", str(self.run_folder)],
            env=environment(),
            stderr=subprocess.PIPE,
            text=True,
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot write to standard output", done.stderr)

    def test_threads_without_end(self):
        cores = len(os.sched_getaffinity(0))
        self.refuse("eval", self.run_folder, "--threads", 4096, says=["4096 threads", f"{cores} cores"])


if __name__ == "__main__":
    unittest.main()
