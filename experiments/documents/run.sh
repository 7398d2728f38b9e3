#!/usr/bin/env bash
# Selective against standard attention on documents: ablations (Tables 2 to 5), sizes and contexts (Figure 3), heads
# (Figure 4), patterns and budgets (Table 6, Figure 7).
#
#   experiments/documents/run.sh [--only TEXT] [--list]      # runs whose name contains TEXT; --list: how far they are
#
# Takes 5 to 8 minutes on one of 2 cores for a run with d = 2 and windows of 256, a quarter of an hour for windows of
# 512, three quarters for 1,024, up to two hours for 2,048; what was interrupted goes on to the bit. Reads wikipedia.txt.gz
# in LAPSE_DATA=DIR. Pieces and runs are in runs/documents: delete one to begin it again. Writes
# experiments/documents/results/NAME.json as each run ends, and of those that there are table.md, memory.md, what
# budgets save, fewer_rows.md and the figures fewer_rows.svg, budgets.svg and figures.svg.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
start_runs "$@"
need_texts wikipedia.txt.gz
make_pieces runs/documents "$@"
.venv/bin/python experiments/documents/run.py "$@"
.venv/bin/python experiments/documents/figures.py
