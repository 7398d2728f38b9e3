#!/usr/bin/env python3
"""Which heads of a run look for what followed before: induction heads (Olsson et al. 2022). Where the last 4 bytes stood before, more than
32 bytes back, it takes the mean attention of each head on the byte that followed then, and beside it that on the 10 bytes before those 4.

    .venv/bin/python experiments/text/induction.py RUN...   # runs of this experiment; adds them to experiments/text/induction.json

Reads the first 2,000 bytes of the test part as one block, half a minute for a run.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from sweep import LAPSE  # noqa: E402

TOKENS, REPEAT, NEAR, CONTROL = 2000, 4, 32, 10


def repeats(tokens):
    """[(query, byte)]: the last REPEAT bytes up to `query` stood before, most recently just before `byte`, more than NEAR back."""
    found, last = [], {}
    for query in range(REPEAT - 1, len(tokens)):
        words = tuple(tokens[query - REPEAT + 1 : query + 1])
        if words in last and query - last[words] > NEAR:
            found.append((query, last[words] + 1))
        last[words] = query
    return found


def attention(head):
    """[query, row], as `lapse inspect --matrix` gives it: each query's line ends at the query itself."""
    weights = numpy.zeros((len(head), len(head)), numpy.float32)
    for query, line in enumerate(head):
        weights[query, : len(line)] = line
    return weights


def measured(head, places):
    weights = attention(head)
    before = range(REPEAT, REPEAT + CONTROL)
    control = [numpy.mean([weights[query, max(0, byte - 1 - age)] for age in before]) for query, byte in places]
    return {
        "what_followed": round(float(numpy.mean([weights[place] for place in places])), 4),
        "control": round(float(numpy.mean(control)), 5),
        "age_1": round(float(numpy.diagonal(weights, -1).mean()), 3),
    }


def heads_of(run):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [LAPSE, "inspect", run, "--matrix", "attention", "--tokens", str(TOKENS), "-o", file.name]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        shown = json.loads(pathlib.Path(file.name).read_text())
    places = repeats(shown["tokens"])
    return {"places": len(places), "layers": [[measured(head, places) for head in layer["heads"]] for layer in shown["layers"]]}


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    said = {pathlib.Path(run).name: heads_of(pathlib.Path(run)) for run in sys.argv[1:]}
    file = HERE / "induction.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(dict(sorted((known | said).items())), indent=1) + "\n")


if __name__ == "__main__":
    main()
