#!/usr/bin/env bash
# Passive T-Maze: success against the corridor's length, with spans that reach its end, fixed or learned, and with a fixed span of 64.
#
#   experiments/t_maze/run.sh [--only TEXT] [--list]      # runs whose name contains TEXT; --list: how far they are
#
# Takes about 3 hours on 2 cores for all; what was interrupted goes on to the bit. Needs no text. Runs are in runs/t_maze: delete
# one to begin it again. Writes experiments/t_maze/results/NAME.json as each run ends, and table.md and t_maze.svg of those that there are.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
start_runs "$@"
need_program
.venv/bin/python experiments/t_maze/run.py "$@"
.venv/bin/python experiments/t_maze/figure.py
