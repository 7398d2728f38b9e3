#!/usr/bin/env python3
"""How long the documents of experiments/documents are: more than half of wikipedia.txt.gz's are hardly more than titles. Writes lengths.json: of the whole text
how many documents there are, and how many bytes they have; of the test part how many fill 90 % of a window, as the evaluations say.

    .venv/bin/python experiments/documents/lengths.py TEXT        # wikipedia.txt.gz
"""

import gzip
import json
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).parent
SHORT = 40  # bytes: hardly more than a title


def documents(text):
    """The bytes of each, without the lines of the markers and blank lines around it, as data.documents = "<doc </doc>" has them."""
    lines = []
    for line in text:
        if line.startswith((b"<doc", b"</doc>")):
            if content := b"".join(lines).strip():
                yield content
            lines = []
        else:
            lines.append(line)
    if content := b"".join(lines).strip():
        yield content


def main():
    with gzip.open(sys.argv[1]) as text:
        sizes = sorted(map(len, documents(text)))
    total = sum(sizes)
    found = {
        "documents": len(sizes),
        "bytes_median": statistics.median(sizes),
        "bytes_mean": total / len(sizes),
        "share_short": sum(size < SHORT for size in sizes) / len(sizes),
        "short_bytes": SHORT,
        "share_of_bytes_in_longest_tenth": sum(sizes[-len(sizes) // 10 :]) / total,
        "test": {},
    }
    for window in (256, 512, 1024, 2048):
        read = json.loads((HERE / "results" / f"d2-{window}-selective-1.json").read_text())["evaluation"]
        found["test"][window] = {
            "documents": read["test"]["documents"],
            "tokens": read["test"]["tokens"],
            "filled_documents": read["filled"]["documents"],
            "filled_tokens": read["filled"]["tokens"],
        }
    (HERE / "lengths.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
