#!/usr/bin/env python3
"""experiments/text/results/memory.svg: bits per byte against mean memory size, the paper's Figure 5 at reduced size.

    .venv/bin/python experiments/text/figure.py
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from memory_figure import draw  # noqa: E402

draw(HERE / "results", "bpb", "bits per byte", runs="{method}*")
