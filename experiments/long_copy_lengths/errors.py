#!/usr/bin/env python3
"""Which sequences of extremely long copy a run gets wrong: by how far behind the query the A's lie, how many they are, and where in its
stream the sequence stands.

    .venv/bin/python experiments/long_copy_lengths/errors.py RUN...     # adds them to experiments/long_copy_lengths/errors.json

32 streams of fresh sequences in blocks of 256, as in `lapse eval`, read by `lapse.load`; 2,048 sequences in all.
"""

import json
import os
import pathlib
import random
import sys
import tomllib

import torch

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
os.environ.setdefault("LAPSE_OPS", str(ROOT / "build" / "release" / "liblapse_ops.so"))
sys.path.insert(0, str(ROOT / "python"))
import lapse  # noqa: E402

STREAMS, BLOCK, EACH, MOST = 32, 256, 64, 4
A, B, QUERY, END = range(4)


def sequences(draw, gap):
    """(tokens, n, distance): n A's, of which the last stands `distance` before the query."""
    for _ in range(EACH):
        n, first = 1 + draw.randrange(MOST), draw.randrange(gap + 1)
        yield [B] * first + [A] * n + [B] * (gap - first) + [QUERY] + [A] * n + [END], n, gap - first + 1


def share(right):
    return {"sequences": len(right), "right": round(100 * sum(right) / max(1, len(right)), 1)}


def measure(run):
    gap = tomllib.loads((run / "config.toml").read_text())["long_copy"]["gap"]
    draw = random.Random(1)
    streams = [list(sequences(draw, gap)) for _ in range(STREAMS)]
    texts = [[token for tokens, _, _ in stream for token in tokens] for stream in streams]
    length = max(map(len, texts))
    tokens = torch.tensor([text + [B] * (length - len(text)) for text in texts])
    model, memory, said = lapse.load(run), None, []
    with torch.no_grad():
        for i in range(0, length, BLOCK):
            logits, memory = model(tokens[:, i : i + BLOCK], memory)
            said.append(logits.argmax(-1))
    said = torch.cat(said, 1)
    found = []  # (order in the stream, n, distance, whether right)
    for b, stream in enumerate(streams):
        at = 0
        for order, (sequence, n, distance) in enumerate(stream):
            end = at + len(sequence)
            answer = slice(end - n - 2, end - 1)
            found.append((order, n, distance, bool((said[b, answer] == tokens[b, end - n - 1 : end]).all())))
            at = end
    fifths = [[right for order, _, d, right in found if order > 0 and k * gap / 5 < d <= (k + 1) * gap / 5 + (k == 4)] for k in range(5)]
    return {
        "all": share([right for *_, right in found]),
        "first of its stream": share([right for order, *_, right in found if order == 0]),
        "by distance, in fifths of T": [share(one) for one in fifths],
        "by number of A's": [share([right for order, n, _, right in found if order > 0 and n == k]) for k in range(1, MOST + 1)],
    }


def main():
    file = HERE / "errors.json"
    told = json.loads(file.read_text()) if file.exists() else {}
    for run in map(pathlib.Path, sys.argv[1:]):
        told[run.name] = measure(run)
        print(run.name, json.dumps(told[run.name], indent=1))
        file.write_text(json.dumps(dict(sorted(told.items())), indent=1) + "\n")


if __name__ == "__main__":
    main()
