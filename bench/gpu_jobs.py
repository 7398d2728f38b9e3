"""Runs bench/gpu.py's jobs: what they compile, they compile side by side, each in a process of its own; then each times in
its turn, with the GPU for itself."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable

from gpu_measure import SMOKE, errors_as_lines, show, table

COMPILING = 0.6  # of the time
PATIENCE = 60  # seconds that a job may take for its turn


@dataclasses.dataclass
class Job:
    """Cases of one kind. `measure(case)` is a generator: what it does before its only yield may happen beside other jobs;
    what follows has the GPU for itself."""

    name: str
    cases: list
    measure: Callable


def begun(job):
    """(case, its generator at the yield) of each case that got so far."""
    for case in job.cases:
        with errors_as_lines(job.name, case):
            run = job.measure(case)
            next(run)
            yield case, run


def finish(job, runs):
    for case, run in runs:
        with errors_as_lines(job.name, case):
            for _ in run:
                pass


def work(job, out):
    """A worker: prepares, says so, waits for its turn, and leaves its lines in the file `out`."""
    runs = list(begun(job))
    if not SMOKE:
        import torch

        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    pathlib.Path(out).write_text(json.dumps(table))
    print("\0ready", flush=True)
    sys.stdin.readline()
    finish(job, runs)
    pathlib.Path(out).write_text(json.dumps(table))
    print("\0done", flush=True)


class Worker:
    """The process of a job. What it prints is kept until its turn is over."""

    def __init__(self, number, job, folder, arguments):
        self.job, self.out, self.said = job, folder / f"{number}.json", []
        self.ready, self.done = threading.Event(), threading.Event()
        command = [sys.executable, str(pathlib.Path(__file__).parent / "gpu.py"), *arguments, "--job", str(number), str(self.out)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True, env=os.environ | {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"})  # fmt: skip
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            if line.startswith("\0"):
                (self.ready if "ready" in line else self.done).set()
            else:
                self.said.append(line)
        self.ready.set(), self.done.set()  # it ended, one way or the other

    def wait(self, event, until):
        while not event.is_set() and time.time() < until:
            time.sleep(0.02)
        return event.is_set()

    def turn(self, until):
        """Lines of the job; if it is not ready by then, one that says so."""
        ready = self.process.poll() is None
        if ready:
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
            ready = self.wait(self.done, max(until, time.time() + PATIENCE))
        self.process.kill()
        self.process.wait()
        print("".join(self.said), end="", flush=True)
        lines = json.loads(self.out.read_text()) if self.out.exists() else []
        if self.process.returncode in (0, -9) and not ready:
            lines.append({"what": self.job.name, "cases": len(self.job.cases), "left_out": "out of time"})
        elif not ready:
            last = "".join(self.said[-3:]).strip()[-250:]
            lines.append({"what": self.job.name, "error": f"the process of this job ended with {self.process.returncode}: {last}"})
        else:
            return lines
        show(lines[-1])
        return lines


def run(jobs, arguments, deadline):
    """Adds the lines of all jobs to the table, in their order."""
    if SMOKE:
        for job in jobs:
            finish(job, list(begun(job)))
        return
    with tempfile.TemporaryDirectory() as folder:
        workers = [Worker(i, job, pathlib.Path(folder), arguments) for i, job in enumerate(jobs)]
        compiled_by = time.time() + COMPILING * (deadline - time.time())  # nobody times while others try their kernels
        for worker in workers:
            worker.wait(worker.ready, compiled_by)
        for worker in workers:
            if not worker.ready.is_set():  # and what has not come so far does not
                worker.process.kill()
        for worker in workers:
            table.extend(worker.turn(deadline))
