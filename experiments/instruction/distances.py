"""How far an execution lies behind its order in the instruction task, in words: experiments/instruction/distances.py writes distances.json.

The logs are those of `lapse task show instruction --seed 1`, 2 million words each, read by the checker of the tests. Reads light/ and c4-sample.txt
in LAPSE_DATA (scripts/data.sh).
"""

import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from instruction_log import Checker, World, summary  # noqa: E402

DATA = pathlib.Path(os.environ.get("LAPSE_DATA", ROOT.parent / "shared" / "data"))
VILLAGE, LIGHT = ROOT / "lapse" / "tasks" / "village.json", DATA / "light" / "complex_world_2020-09.json"
CHATTER = {"chatter": DATA / "c4-sample.txt"}
WORDS = 2_000_000
LOGS = {
    "village": (VILLAGE, {}),
    "light": (LIGHT, CHATTER),
    "light, chatter_words 15": (LIGHT, CHATTER | {"chatter_words": 15}),
    "light, chatter_words 25": (LIGHT, CHATTER | {"chatter_words": 25}),
    "light, one endless game, no chatter": (LIGHT, {"rounds": 1_000_000}),
}


def log(world, options):
    settings = {"test_words": WORDS, **({"world": world} if world != VILLAGE else {}), **options}
    flags = [word for name, value in settings.items() for word in ("--set", f"instruction.{name}={value}")]
    program = os.environ.get("LAPSE", ROOT / "build" / "release" / "lapse")
    shown = subprocess.run([program, "task", "show", "instruction", "--seed", "1", "--length", str(WORDS), *flags], capture_output=True, text=True, check=True)
    return shown.stdout.splitlines()[:-1]


def main():
    found = {}
    for name, (world, options) in LOGS.items():
        found[name] = summary(Checker(World(json.loads(world.read_text()))).check(log(world, options)))
        print(f"{name}: {found[name]}")
    (HERE / "distances.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
