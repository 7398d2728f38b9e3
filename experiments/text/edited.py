#!/usr/bin/env python3
"""An edited text, the paper's Figure 8: how long the last layer of a run holds a name, and a common word in the name's place.

    .venv/bin/python experiments/text/edited.py RUN     # a run of this experiment with spans; writes experiments/text/edited.json

Takes some seconds. Reads a passage of the test part, as it is and with the name replaced; results/edited.png shows the spans of both.
"""

import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from sweep import LAPSE  # noqa: E402

OFFSET, TOKENS = 381160, 560  # in the test part: an article on an election in Colombia
NAME, COMMON = "Duque", "people"


def passage(run, folder):
    """The passage, from the beginning of its first sentence on."""
    file = folder / "passage.json"
    subprocess.run([LAPSE, "inspect", run, f"--offset={OFFSET}", f"--tokens={TOKENS + 300}", "-o", file], check=True, stdout=subprocess.DEVNULL)
    text = "".join(cell[0] for cell in json.loads(file.read_text())["cells"][0])
    begin = text.index(f"On 11 March 2018, {NAME}")
    return text[begin : begin + TOKENS]


def spans_of_words(shown):
    """(word, mean span of its bytes in the last layer) in the order of the text."""
    spans, words, at = shown["layers"][-1]["told"]["span"], [], 0
    text, places = "", []  # a cell stands for so many bytes
    for cell, bytes_ in shown["cells"][0]:
        text, places, at = text + cell, places + [at] * len(cell), at + bytes_
    for word in re.finditer(r"\w+", text):
        begin, end = places[word.start()], places[word.end()] if word.end() < len(places) else at
        words.append((word[0], round(statistics.mean(spans[begin:end]), 1)))
    return words


def main():
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    run = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        text = passage(run, folder)
        a, b, two = folder / "a.txt", folder / "b.txt", folder / "two.json"
        a.write_text(text), b.write_text(text.replace(NAME, COMMON))
        subprocess.run([LAPSE, "inspect", run, "--data", a, "--compare", b, "-o", two], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([LAPSE, "plot", two, "-o", HERE / "results" / "edited.png"], check=True)
        shown = json.loads(two.read_text())
    words, edited = spans_of_words(shown), spans_of_words(shown["other"])
    capital = [span for word, span in words if word[0].isupper() and len(word) > 3]
    small = [span for word, span in words if word[0].islower() and len(word) > 3]
    result = {
        "run": run.name,
        NAME: [span for word, span in words if word == NAME],
        COMMON: [span for word, span in edited if word == COMMON],
        "words of four letters or more": {
            "with a capital": {"count": len(capital), "mean": round(statistics.mean(capital), 1)},
            "without": {"count": len(small), "mean": round(statistics.mean(small), 1)},
        },
        "words": words,
    }
    (HERE / "edited.json").write_text(json.dumps(result) + "\n")
    for key in (NAME, COMMON, "words of four letters or more"):
        print(key, result[key])


if __name__ == "__main__":
    main()
