#!/usr/bin/env bash
# Agents in environments: Figure 4, left and middle, of the Expire-Span paper.
#
#   experiments/rl/run.sh [--only TEXT] [--list]      # experiments whose name contains TEXT; --list: how far they are
#
# Takes up to 25 minutes on 2 quiet cores for a run of Corridor, and many hours for all: what was interrupted goes on to
# the bit, so that it can be run in pieces. Needs no text. Runs are in runs/rl: delete one to begin it again. Writes
# experiments/rl/results/NAME.json as each run ends, and table.md, corridor.svg and portal.svg of those that there are.
# A result whose run is gone is kept: delete it to make both anew.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
start_runs "$@"
need_program
.venv/bin/python experiments/rl/run.py "$@"
.venv/bin/python experiments/rl/figures.py
