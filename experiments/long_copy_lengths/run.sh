#!/usr/bin/env bash
# Extremely long copy with T = 500, 2,000 and 8,000: Expire-Span against fixed spans, and which settings learning needs;
# models that grow with T (--only grown), each from the one before.
#
#   experiments/long_copy_lengths/run.sh [--only TEXT] [--list]      # runs whose name contains TEXT; --list: how far they are
#
# Takes about 15 minutes on 2 cores for a run with T = 500, hours for all; what was interrupted goes on to the bit.
# Needs no text. Runs are in runs/long_copy_lengths: delete one to begin it again. Writes
# experiments/long_copy_lengths/results/NAME.json as each run ends, and table.md.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
start_runs "$@"
need_program
.venv/bin/python experiments/long_copy_lengths/run.py "$@"
