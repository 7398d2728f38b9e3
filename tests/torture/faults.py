"""Each call on a file fails in turn: writing, flushing, renaming, mapping, closing, opening, reading (tests/torture/faults.cpp).

    .venv/bin/python tests/torture/faults.py [--quick] [--json FILE] [CASE ...]

Of every verb that writes files, and of those that read runs. What must hold at every single point:

* the program ends well, with the result of an undisturbed run, or with one line that names the file and the cause, and status 1;
* nothing half written is left, and the newest checkpoint is no older than before;
* run again without the fault, the result is that of an undisturbed run, to the bit. (A stream that was kept already would go on: that is enough.)

--quick takes one of the errors at each point, in turn, instead of all.
"""

import argparse
import errno
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from program import PROGRAM, TINY, checkpoints, english, environment, lapse, merged, toml  # noqa: E402
from record import keep  # noqa: E402
from same_run import newest_checkpoint, recorded  # noqa: E402
from span_cli_test import SPANS  # noqa: E402

LIBRARY = os.environ.get("LAPSE_FAULTS", str(HERE.parent.parent / "build" / "release" / "libfaults.so"))
FULL = (errno.ENOSPC, errno.EIO, errno.EDQUOT)
SHORT = 0
# What a call may fail with. (errno, whether all later ones of its kind fail too)
ERRORS = {
    "write": [(errno.ENOSPC, True), (errno.EIO, False), (SHORT, False), (errno.EDQUOT, False), (errno.ENOSPC, False)],
    "fsync": [(error, False) for error in FULL],
    "close": [(error, False) for error in FULL],
    "rename": [(error, False) for error in FULL],
    "mkdir": [(error, False) for error in FULL],
    "open": [(errno.ENOSPC, True), (errno.EMFILE, False), (errno.EACCES, False), (errno.EDQUOT, False)],
    "truncate": [(errno.EIO, False)],
    "unlink": [(errno.EIO, False)],
    "flock": [(errno.ENOLCK, False)],
    "mmap": [(errno.ENOMEM, False), (errno.EIO, False), (errno.ENODEV, False)],
    "open-to-read": [(errno.EIO, False), (errno.EMFILE, False)],
    "read": [(errno.EIO, False), (SHORT, False)],
}

TRAIN = merged(
    TINY,
    {"data": {"path": "text.txt"}, "train": {"updates": 12, "checkpoint_every": 4, "log_every": 2, "validate_every": 6, "keep": 2}},
)
AGENT = merged(
    TINY,
    {"data": {"task": "corridor"}, "corridor": {"longest": 5}, "actor_critic": {"validation_episodes": 5}},
    {"train": {"batch": 4, "block": 10, "updates": 12, "checkpoint_every": 4, "log_every": 2, "validate_every": 6, "keep": 2}},
)
PRUNED = merged(TRAIN, {"forgetting": {"method": "selective_attention"}, "selective_attention": {"memory_loss": 0.1}})


class Case:
    """A command in a folder, what must be there before, and what it makes. goes_on: run again, it makes something else."""

    def __init__(self, command, made, before=(), goes_on=False):
        self.command, self.made, self.before, self.goes_on = command, made, before, goes_on


def of_run(folder):
    """Metrics, weights and state."""
    return [recorded(folder / "run"), newest_checkpoint(folder / "run")]


def of_files(*names):
    return lambda folder: [(folder / name).read_bytes() for name in names]


def of_stdout(folder):
    """Of what the command says, all but times and the machine's memory."""
    said = json.loads((folder / "stdout").read_text())
    return {key: value for key, value in said.items() if not re.search("second|ms_per|peak_memory|resident", key)}


def of_text(folder):
    return (folder / "stdout").read_text()


RESUMED = ("train", "train.toml", "--out", "run", "--resume", "--quiet")
SHORTER = (*RESUMED, "--set=train.updates=8")
GOES_ON = ("generate", "run", "--tokens=5", "--seed=1", "--state=stream.state", "--json")
ACTS = ("train", "agent.toml", "--out", "run", "--resume", "--quiet")
CASES = {
    "train": Case(RESUMED, of_run),
    "train --resume": Case(RESUMED, of_run, [SHORTER]),
    "train, T5": Case(("train", "spans.toml", "--out", "run", "--resume", "--quiet"), of_run),
    "train, an agent": Case(ACTS, of_run),
    "prune": Case(("prune", "run", "--tokens=300", "--step=8", "--threshold=9", "--out=small.safetensors"),
                  of_files("small.safetensors", "run/prune.json"), [("train", "pruned.toml", "--out", "run", "--quiet")]),
    "tokenizer train": Case(("tokenizer", "train", "--data", "text.txt", "--vocabulary=320", "--out=a.model"), of_files("a.model")),
    "eval": Case(("eval", "run", "--json"), of_stdout, [SHORTER]),
    "eval --losses": Case(("eval", "run", "--losses=losses.jsonl"), of_files("losses.jsonl"), [SHORTER]),
    "generate": Case(("generate", "run", "--tokens=5", "--json"), of_stdout, [SHORTER]),
    "generate --state": Case(GOES_ON, of_files("stream.state"), [SHORTER, GOES_ON], goes_on=True),
    "inspect": Case(("inspect", "run", "--tokens=40", "--out=page.html"), of_files("page.html"), [SHORTER]),
    "inspect --matrix": Case(("inspect", "run", "--tokens=30", "--matrix=attention", "--out=matrix.json"), of_files("matrix.json"),
                             [SHORTER]),
    "export": Case(("export", "run", "--out=t5"), of_files("t5/model.safetensors", "t5/config.json"),
                   [("train", "spans.toml", "--out", "run", "--quiet")]),
    "import": Case(("import", "t5", "--config=spans.toml", "--out=there"), lambda folder: newest_checkpoint(folder / "there"),
                   [("train", "spans.toml", "--out", "run", "--quiet"), ("export", "run", "--out=t5")]),
    "eval, an agent": Case(("eval", "run", "--episodes=4", "--json"), of_stdout, [ACTS]),
    "play": Case(("play", "corridor", "run"), of_text, [ACTS]),
    "inspect, an agent": Case(("inspect", "run", "--episodes=2", "--out=page.html"), of_files("page.html"), [ACTS]),
    "info": Case(("info", "run", "--json"), of_text, [SHORTER]),
}


def run(folder, command, variables={}, **options):
    if variables or options:
        done = subprocess.run([PROGRAM, *command], cwd=folder, env=environment() | variables, capture_output=True, text=True, check=False, **options)
    else:
        done = lapse(*command, cwd=folder)
    (folder / "stdout").write_text(done.stdout)
    return done


def prepared(folder, case):
    folder.mkdir()
    (folder / "text.txt").write_text(english(1500))
    for name, config in {"train": TRAIN, "agent": AGENT, "pruned": PRUNED, "spans": merged(TRAIN, SPANS)}.items():
        (folder / f"{name}.toml").write_text(toml(config))
    for command in case.before:
        done = run(folder, command)
        assert done.returncode == 0, (command, done.stderr)
    return folder


def calls_of(case, folder):
    """Every call that an undisturbed run makes on its files: [(call, path)], and what the run makes."""
    log = folder.with_suffix(".log")
    done = run(folder, case.command, {"FAULTS_UNDER": str(folder), "FAULTS_LOG": str(log), "LD_PRELOAD": LIBRARY})
    assert done.returncode == 0, done.stderr
    calls = [tuple(line.split(" ", 1)) for line in log.read_text().splitlines()]
    return calls, case.made(folder)


def newest(folder):
    return max((path.name for path in checkpoints(folder / "run")), default="")


def complaint(case, folder, done, call, path, error, undisturbed, before):
    """What is wrong with the way this run ended; None if nothing is."""
    said, name = done.stderr.splitlines(), pathlib.Path(path).name.removesuffix(".partial").removesuffix(".lock")
    if done.returncode == 0:
        if case.made(folder) != undisturbed and not any(line.startswith("lapse: warning:") and name in line for line in said):
            return "another result, and no warning"
    elif done.returncode != 1:
        return f"status {done.returncode}"
    else:
        errors = [line for line in said if line.startswith("lapse: error: ")]
        if len(errors) != 1 or said[-1] != errors[0]:
            return "not one line"
        if name not in errors[0] and pathlib.Path(path).parent.name not in errors[0]:
            return "the file is not named"
        if error and os.strerror(error) not in errors[0]:
            return "the cause is not named"
    left = [str(found) for found in folder.rglob("*.partial")]
    if left and call != "unlink":
        return f"left: {left}"
    if newest(folder) < before:
        return f"the newest checkpoint is {newest(folder)}, it was {before}"
    if done.returncode == 0 or (case.goes_on and case.made(folder) == undisturbed):
        return None
    again = run(folder, case.command)
    if again.returncode != 0:
        return "without the fault: " + again.stderr
    if case.made(folder) != undisturbed:
        return "without the fault: another result"
    if any(folder.rglob("*.partial")):
        return "without the fault: something half written is left"
    return None


def torture(name, case, scratch, quick):
    template = prepared(scratch / f"{re.sub('[^a-z0-9]+', '-', name)}-before", case)
    before = newest(template)
    whole = scratch / "whole"
    shutil.copytree(template, whole)
    calls, undisturbed = calls_of(case, whole)
    shutil.rmtree(whole)
    result = {"calls": len(calls), "faults": 0, "ended well": 0, "kinds": {}, "failures": []}
    turn = itertools.count()
    for at, (call, path) in enumerate(calls, 1):
        result["kinds"][call] = result["kinds"].get(call, 0) + 1
        errors = ERRORS[call]
        for error, lasting in [errors[next(turn) % len(errors)]] if quick else errors:
            folder = scratch / "whole"  # the same name: paths are part of what is compared
            shutil.copytree(template, folder)
            fault = {"FAULTS_UNDER": str(folder), "FAULTS_AT": str(at), "FAULTS_ERROR": str(error), "LD_PRELOAD": LIBRARY}
            done = run(folder, case.command, fault | ({"FAULTS_LAST": "1"} if lasting else {}))
            wrong = complaint(case, folder, done, call, path, error, undisturbed, before)
            result["faults"] += 1
            result["ended well"] += done.returncode == 0
            if wrong:
                cause = errno.errorcode.get(error, "short") + (" from there on" if lasting else "")
                place = path.removeprefix(str(folder))
                result["failures"].append({"point": at, "call": call, "path": place, "error": cause, "wrong": wrong, "said": done.stderr})
                print(f"{name}: {call} {place} {cause}: {wrong}\n{done.stderr}", file=sys.stderr)
            shutil.rmtree(folder)
    return result


def main():
    if not pathlib.Path(LIBRARY).exists():
        sys.exit(f"faults: {LIBRARY} is missing; scripts/build.sh release makes it")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; all without")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=pathlib.Path, help="what was measured; other cases of the file stay")
    arguments = parser.parse_args()
    failed = False
    for name in arguments.cases or CASES:
        begun = time.time()
        with tempfile.TemporaryDirectory() as scratch:
            found = torture(name, CASES[name], pathlib.Path(scratch), arguments.quick)
        failed |= bool(found["failures"])
        kinds = found["kinds"]
        if "rename" in kinds and (kinds.get("fsync", 0) < 2 * kinds["rename"] or not {"write", "close"} <= kinds.keys()):
            failed = True
            print(f"{name}: a file that is renamed is written, closed and flushed before, and its folder after; there are {kinds}", file=sys.stderr)
        print(f"{name:18} {found['calls']:4} calls, {found['faults']:5} faults, {found['ended well']:4} ended well, {len(found['failures'])} failures", flush=True)
        keep(arguments.json, name, found | {"seconds": round(time.time() - begun)})
    sys.exit(failed)


if __name__ == "__main__":
    main()
