#!/usr/bin/env bash
# T5 whose decoder forgets by selective attention against the plain one: three seeds each, on pieces of Wikipedia, with
# the lines between its articles and without them (--only documents).
#
#   experiments/t5/run.sh [--only TEXT] [--list]      # runs whose name contains TEXT; --list: how far they are
#
# Takes half an hour on one of 2 cores for a run; what was interrupted goes on to the bit. Reads wikipedia.txt.gz in
# LAPSE_DATA=DIR. Pieces and runs are in runs/t5: delete one to begin it again. Writes experiments/t5/results/NAME.json
# as each run ends, and table.md of those there are.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
start_runs "$@"
need_texts wikipedia.txt.gz
make_pieces runs/t5 "$@"
.venv/bin/python experiments/t5/run.py "$@"
