#!/usr/bin/env python3
"""experiments/wikitext2/results/memory.svg: perplexity per word against mean memory size, the paper's Figure 10 at reduced size.

    .venv/bin/python experiments/wikitext2/figure.py
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from memory_figure import draw  # noqa: E402

draw(HERE / "results", "ppl", "perplexity per word")
