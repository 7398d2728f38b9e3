#!/usr/bin/env python3
"""Which characters the last layer of a run remembers for how long: mean spans by what a character is, and where in its word it stands;
and each layer's mean span during training.

    .venv/bin/python experiments/text/spans.py RUN...       # runs of this experiment; adds them to experiments/text/spans.json

Reads the first 6,000 bytes of the test part, less than a minute for a run.
"""

import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import tomllib

from safetensors import safe_open

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from sweep import LAPSE  # noqa: E402

TOKENS = 6000


def kinds(cells):
    """What the character of each byte is. Letters by their place in the word, from the sixth on together. `cells`: (character, bytes)."""
    place = 0
    for character, count in cells:
        place = place + 1 if character.isalpha() else 0
        other = {" ": "space", "\n": "line end"}.get(character, "digit" if character.isdigit() else "other")
        yield from [f"letter {min(place, 6)}" if place else other] * count


def training(run):
    """{update: mean span of each layer}, every 1,000 updates."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {line["update"]: [round(layer["span_mean"], 1) for layer in line["layers"]] for line in lines if line["split"] == "train" and line["update"] % 1000 == 0}


def spans_of_heads(run):
    """Adaptive-Span's z L, layer by layer; with none of it: nothing."""
    settings = tomllib.loads((run / "config.toml").read_text())["adaptive_span"]
    newest = max((run / "checkpoints").glob("update-*.safetensors"))
    with safe_open(newest, "np") as file:
        names = [name for name in file.keys() if re.fullmatch(r"weight\.layers\.\d+\.span\.fraction", name)]
        spans = [[float(z) * settings["max_span"] for z in file.get_tensor(name)] for name in sorted(names)]
    if not spans:
        return {}
    every = [span for layer in spans for span in layer]
    return {
        "heads": [[round(span, 1) for span in layer] for layer in spans],
        "rows_of_a_head": round(statistics.mean(span + settings["ramp"] for span in every), 1),
    }


def spans_of(run):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run([LAPSE, "inspect", run, "--tokens", str(TOKENS), "-o", file.name], check=True, stdout=subprocess.DEVNULL)
        shown = json.loads(pathlib.Path(file.name).read_text())
    spans = [layer["told"]["span"] for layer in shown["layers"]]
    by_kind = {}
    for kind, span in zip(kinds(shown["cells"][0]), spans[-1], strict=True):
        by_kind.setdefault(kind, []).append(span)
    return {
        "tokens": TOKENS,
        "layers": [{"mean": round(statistics.mean(each), 1), "least": min(each), "most": max(each)} for each in spans],
        "last_layer": {kind: {"count": len(found), "mean": round(statistics.mean(found), 1)} for kind, found in sorted(by_kind.items())},
        "training": training(run),
    } | spans_of_heads(run)


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    said = {pathlib.Path(run).name: spans_of(pathlib.Path(run)) for run in sys.argv[1:]}
    file = HERE / "spans.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | said, indent=1) + "\n")
    for run, found in said.items():
        print(run, *(f"  {kind:10} {each['count']:5} characters, mean span {each['mean']:.0f}" for kind, each in found["last_layer"].items()), sep="\n")


if __name__ == "__main__":
    main()
