#!/usr/bin/env bash
# Agents in environments: Figure 4, left and middle, of the Expire-Span paper, and the T-Maze at growing lengths.
#
#   experiments/rl/run.sh [--only TEXT] [--list]      # experiments whose name contains TEXT; --list: how far they are
#
# Reads no text. A run of Corridor takes up to 100 M steps (15 to 25 minutes on 2 quiet cores), and all of it many hours: what was interrupted
# goes on to the bit, so it can be run in pieces. Runs are in runs/rl; writes experiments/rl/results/NAME.json as each run ends, and
# experiments/rl/results/corridor.svg, portal.svg and t_maze.svg of those that there are.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
help_or_begin "$@"
need_program
.venv/bin/python experiments/rl/run.py "$@"
.venv/bin/python experiments/rl/figures.py
