#!/usr/bin/env python3
"""Draws what a model still remembers of its text, from `lapse generate --json --remembered`, as an SVG.

    build/release/lapse generate RUN --prompt "..." --tokens 600 --json --remembered |
      python3 scripts/remembered_svg.py docs/remembered.svg

One box a byte: the stronger its green, the more layers remember it. For byte models; bytes that are no ASCII are shown as a dot.
"""

import json
import sys
from xml.sax.saxutils import escape

COLUMNS, CHAR, LINE, MARGIN = 96, 7.2, 17, 10


def cells(text, counts):
    """(line, column, character, count) of each byte; lines break at line ends and at COLUMNS."""
    line = column = 0
    for byte, count in zip(text, counts):
        if byte == 10:
            yield line, column, "↵", count
            line, column = line + 1, 0
            continue
        if column == COLUMNS:
            line, column = line + 1, 0
        yield line, column, chr(byte) if 32 <= byte < 127 else "·", count
        column += 1


def main():
    result = json.load(sys.stdin)
    text = bytes(result["prompt"], "utf-8") + bytes(result["tokens"])
    layers = len(result["memory_sizes"])
    placed = list(cells(text, result["remembered"]))
    height = MARGIN * 2 + LINE * (placed[-1][0] + 1)
    width = MARGIN * 2 + CHAR * COLUMNS
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" font-family="monospace" font-size="12">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
    ]
    for line, column, _, count in placed:
        if count:
            x, y = MARGIN + CHAR * column, MARGIN + LINE * line
            out.append(f'<rect x="{x:.1f}" y="{y}" width="{CHAR}" height="{LINE - 2}" fill="#2da44e" fill-opacity="{0.15 + 0.6 * count / layers:.2f}"/>')
    for line, column, char, count in placed:
        colour = "#1f2328" if count else "#8c959f"
        if char != " ":
            out.append(f'<text x="{MARGIN + CHAR * column:.1f}" y="{MARGIN + LINE * line + 12}" fill="{"#b0b8c0" if char == "↵" else colour}">{escape(char)}</text>')
    out.append("</svg>")
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
