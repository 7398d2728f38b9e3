#!/usr/bin/env python3
"""What the long spans of a run are for (the paper's Figures 9 and 12): its loss when spans are cut, which words need what was cut, and loss
and memory along the test text.

    .venv/bin/python experiments/text/cut.py RUN        # a run of this experiment with spans

Reads the test part nine times, some five minutes on one core. Writes experiments/text/cut.json, and in results cut.svg and along.png.
"""

import json
import math
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "lapse"  # the same file for the same numbers
import matplotlib.pyplot as plt  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from sweep import LAPSE  # noqa: E402

SPANS = (16, 32, 64, 128, 256, 512, 0)  # 0: as trained
CUT = 64  # the cut whose losses are looked at word by word
WINDOW = 5000  # tokens of a mean along the text
LN2 = math.log(2)
BEFORE = {"at most 64 bytes before": (0, 64), "65 to 256": (64, 256), "257 to 512": (256, 512), "farther, or never": (512, float("inf"))}
WORD = re.compile(rb"[A-Za-z\x80-\xff]{4,}")


def said(*arguments):
    return json.loads(subprocess.run([LAPSE, "eval", *arguments, "--json"], check=True, stdout=subprocess.PIPE).stdout)


def reading(run, span):
    found = said(run, f"--max-span={span}")
    return {"max_span": span, "bpb": found["bpb"], "memory": found["memory_mean"], "memory_of_layers": [layer["memory_mean"] for layer in found["layers"]]}


def by_last_occurrence(tokens):
    """Of letters from a word's second on: how many bits the cut costs, by how far back the same word was last."""
    text = bytes(token["token"] for token in tokens)
    extra = [(token["nats"] - token["against_nats"]) / LN2 for token in tokens]
    whole = [token["against_nats"] / LN2 for token in tokens]
    found, last = {name: [] for name in BEFORE}, {}
    for word in WORD.finditer(text):
        back = word.start() - last.get(word[0], -float("inf"))
        last[word[0]] = word.start()
        name = next(name for name, (more, most) in BEFORE.items() if more < back <= most)
        found[name] += range(word.start() + 1, word.end())
    mean = lambda values, places: round(statistics.mean(values[i] for i in places), 4)
    return {name: {"letters": len(places), "bits": mean(whole, places), "more_bits": mean(extra, places)} for name, places in found.items()}


def along(tokens):
    """The least and the greatest loss and memory of windows of the text, read with whole spans."""
    windows = [tokens[i : i + WINDOW] for i in range(0, len(tokens) - WINDOW + 1, WINDOW)]
    bits = [statistics.mean(token["against_nats"] for token in window) / LN2 for window in windows]
    rows = [statistics.mean(statistics.mean(token["against_memory"]) for token in window) for window in windows]
    ends = lambda values, digits: [round(min(values), digits), round(max(values), digits)]
    return {"window": WINDOW, "bits": ends(bits, 2), "rows": ends(rows, 1)}


def picture(readings, words):
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2))
    longest = 2 * max(each["max_span"] for each in readings)
    left.plot([each["max_span"] or longest for each in readings], [each["bpb"] for each in readings], marker="o", color="C1")
    left.set_xscale("log", base=2)
    left.set_xticks([each["max_span"] or longest for each in readings], [str(each["max_span"] or "whole") for each in readings])
    left.set_xlabel("spans cut at")
    left.set_ylabel("bits per byte, test")
    right.bar(range(len(words)), [each["more_bits"] for each in words.values()], color="C1")
    right.set_xticks(range(len(words)), [name.replace(" bytes before", "").replace(", ", ",\n") for name in words], fontsize=8)
    right.set_xlabel("the same word was last so many bytes before")
    right.set_ylabel(f"bits more per letter,\nspans cut at {CUT}")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(HERE / "results" / "cut.svg", metadata={"Date": None})


def main():
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    run = pathlib.Path(sys.argv[1])
    readings = [reading(run, span) for span in SPANS]
    with tempfile.TemporaryDirectory() as folder:
        losses = pathlib.Path(folder) / "cut.jsonl"
        compared = said(run, f"--max-span={CUT}", "--against", run, "--losses", losses, "--streams=1")
        subprocess.run([LAPSE, "plot", losses, f"--smooth={WINDOW}", "-o", HERE / "results" / "along.png"], check=True)
        tokens = [json.loads(line) for line in losses.read_text().splitlines()]
    words = by_last_occurrence(tokens)
    result = {"run": run.name, "readings": readings, "cut": CUT, "words": words, "along": along(tokens), "differences": compared["differences"]}
    (HERE / "cut.json").write_text(json.dumps(result, indent=1) + "\n")
    picture(readings, words)
    for each in readings:
        print(f"spans cut at {each['max_span'] or 'none':>4}: {each['bpb']:.3f} bits per byte, {each['memory']:.0f} rows")
    print(f"along the text: {result['along']}")
    for name, each in words.items():
        print(f"{name:24} {each['letters']:7} letters, {each['bits']:.2f} bits, cut at {CUT}: {each['more_bits']:+.2f}")


if __name__ == "__main__":
    main()
