"""Tiny trained runs, and servers of them that tests share."""

import pathlib
import tempfile
import unittest

from program import TINY, ProgramTest, english, lapse, merged, toml
from serve_client import Server

RUNS = {
    "expire": {},
    "fixed": {"forgetting": {"method": "fixed_span"}},
    "selective": {"forgetting": {"method": "selective_attention"}, "selective_attention": {"max_span": 40}, "model": {"attend_self": True}},
    "windows": {"data": {"windows": True}, "model": {"positions": "absolute"}, "train": {"block": 32}},
    "words": {"data": {"unit": "word"}},
    "corridor": {"data": {"task": "corridor", "path": ""}, "corridor": {"longest": 8}, "train": {"batch": 8, "updates": 2}},
}
# What there is no stream to watch of.
RUNS_WITHOUT_A_STREAM = {
    "labels": {"data": {"task": "collision", "path": ""}, "train": {"updates": 2, "checkpoint_every": 2, "validate_every": 0}},
    "encoder": {
        "data": {"objective": "span_corruption", "sentinels": 12},
        "model": {"encoder_layers": 1, "norm": "pre", "positions": "buckets", "attend_self": True, "scaled_logits": False},
        "forgetting": {"method": "selective_attention"},
        "train": {"block": 40, "updates": 2, "checkpoint_every": 2, "validate_every": 0},
    },
}
TEXT = "The river forgets slowly. Memory was the winter of that captain, "


class Runs(ProgramTest):
    """Trained once for all tests of a class, and served once for each choice of them."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.runs, cls.servers = pathlib.Path(folder.name), {}
        (cls.runs / "text.txt").write_text(english(6000))
        for name, changes in RUNS.items():
            cls.train(name, changes)
        cls.addClassCleanup(cls.stop_servers)

    @classmethod
    def train(cls, name, changes):
        (cls.runs / f"{name}.toml").write_text(toml(merged(TINY, {"data": {"path": "text.txt"}}, changes)))
        done = lapse("train", f"{name}.toml", "--out", name, cwd=cls.runs)
        assert done.returncode == 0, done.stderr

    @classmethod
    def stop_servers(cls):
        for server in cls.servers.values():
            seconds, said, status = server.stop()
            assert status == 0 and seconds < 1.5, f"{said}: status {status} after {seconds} s"

    @classmethod
    def serve(cls, *runs):
        if runs not in cls.servers:
            cls.servers[runs] = Server(*runs, cwd=cls.runs)
        return cls.servers[runs]
