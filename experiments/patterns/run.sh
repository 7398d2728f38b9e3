#!/usr/bin/env bash
# Which tokens selective attention masks: copy, parity, and documents of Wikipedia (section 7, Figures 1, 5 and 9 to 11 of the
# Selective Attention paper).
#
#   experiments/patterns/run.sh [--only TEXT] [--list]      # runs whose name contains TEXT; --list: how far they are
#
# Takes some 25 minutes on one of 2 cores; what was interrupted goes on to the bit. Reads wikipedia.txt.gz in LAPSE_DATA=DIR.
# Pieces and runs are in runs/patterns: delete one to begin it again. Writes experiments/patterns/results/NAME.json as each run
# ends, and table.md; once all have ended patterns.json and the pictures tasks.svg, masking.png and kept.png.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
start_runs "$@"
need_texts wikipedia.txt.gz
make_pieces runs/patterns "$@"
.venv/bin/python experiments/patterns/run.py "$@"
.venv/bin/python experiments/patterns/patterns.py
