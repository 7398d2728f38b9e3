"""Every verb under limits on its address space, from where the program hardly starts to where there is enough.

    .venv/bin/python tests/torture/starve.py [--limits 40] [--json FILE] [VERB ...]

At each limit the program ends well, or with status 1 and one line that says that memory ran out; nothing half written is left; and what
an undisturbed run made before is still there.
"""

import argparse
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from faults import CASES, SHORTER, Case, newest, of_text, prepared, run  # noqa: E402
from program import PROGRAM, environment  # noqa: E402
from record import keep  # noqa: E402

MEGABYTE = 1 << 20
ENOUGH = 16_000  # MB


GOLDEN = HERE.parent / "golden" / "expire_span.safetensors"
SERVE = ("serve", "run", "--port", "0")
CASES = CASES | {  # and those that have no files of their own to fail, or write what differs each time
    "task show": Case(("task", "show", "copy"), of_text),
    "init": Case(("init", "expire_span"), of_text),
    "golden": Case(("golden", str(GOLDEN)), of_text),
    "plot": Case(("plot", "run", "--out=curves.svg"), lambda folder: (folder / "curves.svg").exists(), [SHORTER]),
    "serve": Case(SERVE, lambda folder: None, [SHORTER]),
}


def limited(folder, command, megabytes):
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (megabytes * MEGABYTE, megabytes * MEGABYTE))
    return served(folder, limit) if command == SERVE else run(folder, command, preexec_fn=limit)


def served(folder, limit=None):
    """A server that is asked to stop as soon as it serves."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([PROGRAM, *SERVE], cwd=folder, env=environment(), preexec_fn=limit, **pipes)
    if "http://" in process.stdout.readline():
        process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=120)
    return subprocess.CompletedProcess(SERVE, process.returncode, out, errors)


def least(works, low, high):
    """The least limit, in MB, under which it works."""
    while high - low > 2:
        middle = (low + high) // 2
        low, high = (low, middle) if works(middle) else (middle, high)
    return high


def complaint(case, folder, done, before, undisturbed):
    if done.returncode == 0 and case.made(folder) != undisturbed:
        return "another result"
    if done.returncode not in (0, 1):
        return f"status {done.returncode}"
    errors = [line for line in done.stderr.splitlines() if line.startswith("lapse: error: ")]
    if done.returncode == 1 and (len(errors) != 1 or "memory" not in errors[0]):
        return "not one line that says so"
    if any(folder.rglob("*.partial")):
        return "something half written is left"
    if newest(folder) < before:
        return "a checkpoint is gone"
    return None


def starve(case, scratch, steps, start):
    """From the least limit under which the program says --version to the least under which the command works, and above."""
    template, folder = prepared(scratch / "before", case), scratch / "whole"

    def fresh():
        shutil.rmtree(folder, ignore_errors=True)
        return shutil.copytree(template, folder)

    whole = fresh()
    assert limited(whole, case.command, ENOUGH).returncode == 0
    undisturbed = case.made(whole)
    enough = least(lambda limit: limited(fresh(), case.command, limit).returncode == 0, start, ENOUGH)
    limits = sorted({round(start + (enough - start) * i / (steps - 4)) for i in range(steps - 3)} | {enough + 10, enough + 100, ENOUGH})
    result = {"least to start, MB": start, "least to work, MB": enough, "limits": len(limits), "ended well": 0, "failures": []}
    for limit in limits:
        before = newest(fresh())
        done = limited(folder, case.command, limit)
        result["ended well"] += done.returncode == 0
        wrong = complaint(case, folder, done, before, undisturbed)
        if wrong:
            result["failures"].append({"limit, MB": limit, "wrong": wrong, "said": done.stderr})
            print(f"{' '.join(case.command)} at {limit} MB: {wrong}\n{done.stderr}", file=sys.stderr)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="VERB", help=f"of {', '.join(CASES)}; all without")
    parser.add_argument("--limits", type=int, default=40, help="how many for each")
    parser.add_argument("--json", type=pathlib.Path, help="what was measured; other verbs of the file stay")
    arguments = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as scratch:
        start = least(lambda limit: limited(pathlib.Path(scratch), ("--version",), limit).returncode == 0, 0, ENOUGH)
    for name in arguments.cases or CASES:
        begun = time.time()
        with tempfile.TemporaryDirectory() as scratch:
            found = starve(CASES[name], pathlib.Path(scratch), arguments.limits, start)
        failed |= bool(found["failures"])
        print(f"{name:18} works from {found['least to work, MB']} MB on; {found['limits']} limits, {found['ended well']} ended well, "
              f"{len(found['failures'])} failures", flush=True)
        keep(arguments.json, name, found | {"seconds": round(time.time() - begun)})
    sys.exit(failed)


if __name__ == "__main__":
    main()
