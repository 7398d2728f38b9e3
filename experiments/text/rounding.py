#!/usr/bin/env python3
"""How far rounding alone takes two trainings apart. The beginning of `eq_8` is trained by this program, by this program with torch's kernels
for older processors (ATEN_CPU_CAPABILITY=default), which round differently, and by an earlier program if one is given.

    .venv/bin/python experiments/text/rounding.py [--from RUN] [--earlier PROGRAM] [--updates N]

  --from RUN          goes on from the newest checkpoint of a run that was interrupted, in place of the beginning
  --earlier PROGRAM   `lapse` of an earlier commit, built in a clone of its own
  --updates N         how many are compared (default: 200)

Reads wikipedia.txt.gz in LAPSE_DATA=DIR. Takes about a minute for each program. Adds the differences of the losses, divided by the loss, to
experiments/text/rounding.json.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from sweep import LAPSE, given, lines_of  # noqa: E402

SHOWN = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)


def losses(program, begin, updates, variables):
    """[(update, loss)] of the first `updates` updates after `begin`, a run, or of a new run. The training is interrupted after them."""
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run"
        options = ["--set=train.log_every=1", f"--set=data.path={pathlib.Path(given('LAPSE_DATA')) / 'wikipedia.txt.gz'}"]
        if begin:
            shutil.copytree(begin, run)
            options.append("--resume")
        first = len(lines_of(run, "train"))
        config = run / "config.toml" if begin else HERE / "base.toml"
        equation = [] if begin else ["--set=expire_span.divide=all"]
        command = [program, "train", config, "--out", run, "--quiet", *options, *equation]
        training = subprocess.Popen(command, env=os.environ | variables)
        while training.poll() is None and len(lines_of(run, "train")) < first + updates:
            time.sleep(1)
        training.send_signal(signal.SIGINT)
        if training.wait() not in (0, 130):
            sys.exit(f"{program}: see above")
        return [(line["update"], line["loss"]) for line in lines_of(run, "train")[first:][:updates]]


def differences(ours, others):
    """{updates since the beginning: (other loss − loss) / loss}."""
    assert [update for update, _ in ours] == [update for update, _ in others]
    pairs = list(zip(ours, others, strict=True))
    return {str(number): (other - loss) / loss for number in SHOWN if number <= len(pairs) for (_, loss), (_, other) in pairs[number - 1 : number]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS)
    parser.add_argument("--from", dest="begin", type=pathlib.Path)
    parser.add_argument("--earlier", type=pathlib.Path)
    parser.add_argument("--updates", type=int, default=200)
    asked = parser.parse_args()
    ours = losses(LAPSE, asked.begin, asked.updates, {})
    said = {"first_update": ours[0][0]}
    said["the same program again"] = differences(ours, losses(LAPSE, asked.begin, asked.updates, {}))
    said["torch's kernels for older processors"] = differences(ours, losses(LAPSE, asked.begin, asked.updates, {"ATEN_CPU_CAPABILITY": "default"}))
    if asked.earlier:
        said["an earlier program"] = differences(ours, losses(asked.earlier, asked.begin, asked.updates, {}))
    file = HERE / "rounding.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(known | {asked.begin.name if asked.begin else "beginning": said}, indent=1) + "\n")


if __name__ == "__main__":
    main()
