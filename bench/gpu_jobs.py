"""Runs bench/gpu.py's jobs: what they compile, they compile side by side, each in a process of its own; then each times in
its turn, with the GPU for itself."""

import contextlib
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
    """The process of a job, which leaves its lines in the file `out`. What it prints is kept until its turn is over."""

    def __init__(self, job, command, out):
        self.job, self.out, self.said = job, out, []
        self.ready, self.done = threading.Event(), threading.Event()
        self.finished = self.late = False
        one_thread = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}  # there are many processes
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True, env=os.environ | one_thread)  # fmt: skip
        self.listener = threading.Thread(target=self.listen, daemon=True)
        self.listener.start()

    def listen(self):
        for line in self.process.stdout:
            if line == "\0ready\n":
                self.ready.set()
            elif line == "\0done\n":
                self.finished = True
                self.done.set()
            else:
                self.said.append(line)
        self.ready.set(), self.done.set()  # it has ended, one way or the other

    def wait(self, event, until):
        return event.wait(max(0.0, until - time.time()))

    def turn(self, until):
        """Lines of the job; the last one says so if they are not all."""
        with contextlib.suppress(BrokenPipeError):  # it ended before its turn
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
            self.late |= not self.wait(self.done, max(until, time.time() + PATIENCE))
        self.process.kill()
        self.process.wait()
        self.listener.join()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        print("".join(self.said), end="", flush=True)
        lines = json.loads(self.out.read_text()) if self.out.exists() else []
        if not self.finished:
            ended = {"error": "its process ended: " + "".join(self.said[-3:]).strip()[-250:]}
            lines.append({"what": self.job.name} | ({"left_out": "out of time"} if self.late else ended))
            show(lines[-1])
        return lines


def take_turns(workers, compiled_by, deadline):
    """The lines of all, in their order. Nobody times while others try their kernels, and what is not ready by then ends."""
    for worker in workers:
        worker.wait(worker.ready, compiled_by)
    for worker in workers:
        if not worker.ready.is_set():
            worker.late = True
            worker.process.kill()
    return [line for worker in workers for line in worker.turn(deadline)]


def run(jobs, arguments, deadline):
    """Adds the lines of all jobs to the table."""
    if SMOKE:
        for job in jobs:
            finish(job, list(begun(job)))
        return
    script = str(pathlib.Path(__file__).parent / "gpu.py")
    with tempfile.TemporaryDirectory() as folder:
        workers = []
        for i, job in enumerate(jobs):
            out = pathlib.Path(folder) / f"{i}.json"
            workers.append(Worker(job, [sys.executable, script, *arguments, "--job", str(i), str(out)], out))
        now = time.time()
        table.extend(take_turns(workers, now + COMPILING * (deadline - now), deadline))
