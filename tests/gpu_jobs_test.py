"""bench/gpu.py's jobs: they prepare side by side and time in turn; one that dies or is late costs its own lines alone. And
what scripts/gpu_check.sh says without a GPU."""

import io
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from unittest import mock

os.environ["LAPSE_GPU_SMOKE"] = "1"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "bench"))

import gpu_jobs  # noqa: E402
from gpu_jobs import Job, Worker, take_turns  # noqa: E402

GOOD = """
    write([])
    print("half a line", end="\\n\\0ready\\n", flush=True)
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
        return [line for lines in take_turns(workers, now + compiling, now + 30) for line in lines]

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

    def test_what_was_measured_is_there_when_the_run_is_stopped(self):
        workers = [self.worker("good", GOOD), self.worker("never", "time.sleep(60)")]
        got = take_turns(workers, time.time() + 3, time.time() + 30)
        self.assertEqual(next(got)[0]["what"], "good")
        got.close()
        self.assertTrue(all(worker.process.poll() is not None for worker in workers))

    def test_a_check_that_is_late_is_an_error_and_its_children_end_with_it(self):
        child = "import subprocess; sys.stdout.buffer.write(b'\\xff\\n'); subprocess.run(['sleep', '50'])"
        worker = self.worker("right", child)
        worker.job.needed = True
        begin = time.time()
        lines = [x for lines in take_turns([worker], begin + 1, begin + 3) for x in lines]
        self.assertEqual(lines, [{"what": "right", "error": "out of time"}])
        self.assertLess(time.time() - begin, 20)

    def test_nobody_to_give_a_turn(self):
        said = []
        with mock.patch.object(sys, "stdin", io.StringIO("")):
            job = Job("job", [{}], lambda case: (said.append(x) or x for x in ("prepared", "timed")))
            gpu_jobs.work(job, str(self.folder / "out.json"))
        self.assertEqual(said, ["prepared"])

    def test_work_waits_between_both_halves_of_a_case(self):
        said = []

        def measure(case):
            said.append(("prepared", case["n"]))
            yield
            said.append(("timed", case["n"]))

        job = Job("job", [{"n": 1}, {"n": 2}], measure)
        gpu_jobs.finish(job, list(gpu_jobs.begun(job)))
        self.assertEqual(said, [("prepared", 1), ("prepared", 2), ("timed", 1), ("timed", 2)])


class Check(unittest.TestCase):
    def test_minutes_are_looked_at_first(self):
        script = pathlib.Path(__file__).resolve().parent.parent / "scripts" / "gpu_check.sh"
        with tempfile.TemporaryDirectory() as folder:
            for minutes in ("0.5", "0", "-1", "08", "eight"):
                environment = os.environ | {"LAPSE_MINUTES": minutes, "LAPSE_PYTHON": "false"}
                done = subprocess.run([script, f"{folder}/out"], env=environment, capture_output=True, text=True)
                expected = f"gpu_check: LAPSE_MINUTES must be whole minutes, 1 or more, got '{minutes}'\n"
                self.assertEqual((done.returncode, done.stdout, done.stderr), (1, "", expected))
            self.assertFalse(os.path.exists(f"{folder}/out"))


if __name__ == "__main__":
    unittest.main()
