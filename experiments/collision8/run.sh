#!/usr/bin/env bash
# Object Collision where it can be learned: fixed, compressive, adaptive and expiring spans in small worlds.
#
#   experiments/collision8/run.sh [--only TEXT] [--list]      # runs whose name contains TEXT; --list: how far they are
#
# Takes about 1 hour on 2 cores for a run in a world of 8 x 8 cells, 5 to 10 minutes for one that is small; what was
# interrupted goes on to the bit. Needs no text. Runs are in runs/collision8: delete one to begin it again. Writes
# experiments/collision8/results/NAME.json as each run ends, and table.md of those that there are.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
start_runs "$@"
need_program
.venv/bin/python experiments/collision8/run.py "$@"
