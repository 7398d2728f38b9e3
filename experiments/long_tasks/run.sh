#!/usr/bin/env bash
# Variable Assignment with 10 variables and 10 values, copy to the end, and standard attention on parity and at the paper's 3
# variables and 1,000 values.
#
#   experiments/long_tasks/run.sh [--only TEXT] [--list]      # runs whose name contains TEXT; --list: how far they are
#
# Takes some 15 minutes on one of 2 cores for copy, 20 for parity, 70 for Variable Assignment with 10 values, and three hours on
# both cores with 1,000; what was interrupted goes on to the bit. Needs no text, and AVX-512 BF16 for Variable Assignment.
# Runs are in runs/long_tasks: delete one to begin it again. Writes experiments/long_tasks/results/NAME.json as each run
# ends, and table.md.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
start_runs "$@"
need_program
.venv/bin/python experiments/long_tasks/run.py "$@"
