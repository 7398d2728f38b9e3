"""Runs bench/gpu.py's jobs: what they compile, they compile side by side, each in a process of its own; then each times in
its turn, with the GPU for itself."""

import contextlib
import dataclasses
import json
import os
import pathlib
import signal
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
    needed: bool = False  # if it is late that is an error, as of a check of what is right


def begun(job):
    """(case, its generator at the yield) of each case that got so far."""
    for case in job.cases:
        with errors_as_lines(job.name, case):
            run = job.measure(case)
            next(run)
            yield case, run


def finish(job, runs, after_each=lambda: None):
    for case, run in runs:
        with errors_as_lines(job.name, case):
            for _ in run:
                pass
        after_each()


def work(job, out):
    """A worker: prepares, says so, waits for its turn, and leaves its lines in the file `out`."""

    def leave():
        partial = pathlib.Path(out + ".partial")
        partial.write_text(json.dumps(table))
        partial.replace(out)

    runs = list(begun(job))
    if not SMOKE:
        import torch

        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    leave()
    print("\n\0ready", flush=True)
    if not sys.stdin.readline():  # nobody is there to give a turn
        return
    finish(job, runs, leave)
    print("\n\0done", flush=True)


class Worker:
    """The process of a job, which leaves its lines in the file `out`. What it prints is kept until its turn is over."""

    def __init__(self, job, command, out):
        self.job, self.out, self.said = job, out, []
        self.ready, self.done = threading.Event(), threading.Event()
        self.finished = self.late = False
        one_thread = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}  # there are many processes
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True, errors="replace", start_new_session=True,
                                        env=os.environ | one_thread)  # fmt: skip
        self.listener = threading.Thread(target=self.listen, daemon=True)
        self.listener.start()

    def listen(self):
        try:
            for line in self.process.stdout:
                if line == "\0ready\n":
                    self.ready.set()
                elif line == "\0done\n":
                    self.finished = True
                    self.done.set()
                elif line.strip():
                    self.said.append(line)
        finally:
            self.ready.set(), self.done.set()  # it has ended, one way or the other

    def end(self):
        """With the compilers that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.listener.join(5)
        if not self.listener.is_alive():  # else somebody in a group of its own still holds the pipe
            self.process.stdout.close()

    def wait(self, event, until):
        return event.wait(max(0.0, until - time.time()))

    def turn(self, until):
        """Lines of the job; the last one says so if they are not all."""
        with contextlib.suppress(BrokenPipeError, ValueError):  # it ended before its turn
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
            self.late |= not self.wait(self.done, max(until, time.time() + PATIENCE))
        self.end()
        print("".join(self.said), end="", flush=True)
        lines = json.loads(self.out.read_text()) if self.out.exists() else []
        if not self.finished:
            ended = "its process ended: " + "".join(self.said[-3:]).strip()[-250:]
            what = {"error": "out of time"} if self.late and self.job.needed else {"left_out": "out of time"} if self.late else {"error": ended}
            lines.append({"what": self.job.name} | what)
            show(lines[-1])
        return lines


def take_turns(workers, compiled_by, deadline):
    """Yields the lines of each, in their order. Nobody times while others try their kernels, and what is not ready by
    then ends."""
    try:
        for worker in workers:
            worker.wait(worker.ready, deadline if worker.job.needed else compiled_by)
        for worker in workers:
            if not worker.ready.is_set():
                worker.late = True
                worker.end()
        for worker in workers:
            yield worker.turn(deadline)
    finally:
        for worker in workers:
            worker.end()


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
        for lines in take_turns(workers, now + COMPILING * (deadline - now), deadline):
            table.extend(lines)
