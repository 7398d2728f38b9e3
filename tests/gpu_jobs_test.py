"""bench/gpu.py's jobs: they prepare side by side and time in turn; one that dies or is late costs its own lines alone."""

import os
import pathlib
import sys
import tempfile
import textwrap
import time
import unittest

os.environ["LAPSE_GPU_SMOKE"] = "1"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "bench"))

import gpu_jobs  # noqa: E402
from gpu_jobs import Job, Worker, take_turns  # noqa: E402

GOOD = """
    write([])
    print("\\0ready", flush=True)
    sys.stdin.readline()
    begin = time.time()
    time.sleep(0.2)
    write([{"what": name, "begin": begin, "end": time.time()}])
    print("\\0done", flush=True)
"""


class Jobs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def worker(self, name, body):
        out = self.folder / f"{name}.json"
        start = f"import json, pathlib, sys, time\nname = {name!r}\nwrite = lambda x: pathlib.Path({str(out)!r}).write_text(json.dumps(x))\n"
        return Worker(Job(name, [{}], None), [sys.executable, "-c", start + textwrap.dedent(body)], out)

    def lines(self, *workers, compiling=20.0):
        now = time.time()
        return take_turns(workers, now + compiling, now + 30)

    def test_turns_do_not_overlap(self):
        lines = self.lines(*(self.worker(name, GOOD) for name in "abc"))
        self.assertEqual([line["what"] for line in lines], ["a", "b", "c"])
        for first, second in zip(lines, lines[1:]):
            self.assertLessEqual(first["end"], second["begin"])

    def test_one_that_dies_is_an_error(self):
        before = self.worker("before", "print('no GPU'); sys.exit(3)")
        after = self.worker("after", """
            write([{"what": "kept"}])
            print("\\0ready", flush=True)
            sys.stdin.readline()
            sys.exit("out of memory")
        """)  # fmt: skip
        lines = self.lines(before, after, self.worker("good", GOOD))
        self.assertEqual([line["what"] for line in lines], ["before", "kept", "after", "good"])
        self.assertIn("no GPU", lines[0]["error"])
        self.assertIn("out of memory", lines[2]["error"])

    def test_one_that_is_late_is_left_out(self):
        lines = self.lines(self.worker("late", "time.sleep(60)"), self.worker("good", GOOD), compiling=3.0)
        self.assertEqual(lines[0], {"what": "late", "left_out": "out of time"})
        self.assertEqual(lines[1]["what"], "good")

    def test_work_waits_between_both_halves_of_a_case(self):
        said = []

        def measure(case):
            said.append(("prepared", case["n"]))
            yield
            said.append(("timed", case["n"]))

        job = Job("job", [{"n": 1}, {"n": 2}], measure)
        gpu_jobs.finish(job, list(gpu_jobs.begun(job)))
        self.assertEqual(said, [("prepared", 1), ("prepared", 2), ("timed", 1), ("timed", 2)])


if __name__ == "__main__":
    unittest.main()
