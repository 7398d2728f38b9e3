#!/usr/bin/env bash
# Bits per byte against memory on Wikipedia: fixed spans of four lengths, Expire-Span with three alpha, its ramp alone, Adaptive-Span,
# and three kinds of dropping.
#
#   experiments/text/run.sh [--only TEXT] [--list]      # runs whose name contains TEXT; --list: how far they are
#
# Takes 1 to 2 hours for a run, on one of 2 cores; what was interrupted goes on to the bit. Reads wikipedia.txt.gz in
# LAPSE_DATA=DIR. Runs are in runs/text: delete one to begin it again. Writes experiments/text/results/NAME.json as each run
# ends, table.md and memory.svg. spans.py, induction.py, cut.py and edited.py look at single runs, and rounding.py at how
# far rounding takes two apart.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
start_runs "$@"
need_texts wikipedia.txt.gz
.venv/bin/python experiments/text/run.py "$@"
.venv/bin/python experiments/text/figure.py
