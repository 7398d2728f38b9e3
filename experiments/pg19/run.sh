#!/usr/bin/env bash
# Bits per byte against memory on novels, characters, as PG-19: fixed spans against Expire-Span, with their own positions and with the
# same for all, and a ramp without spans; three seeds each.
#
#   experiments/pg19/run.sh [--only TEXT] [--list]      # runs whose name contains TEXT; --list: how far they are
#
# Takes about 10 minutes on 2 cores for a run; what was interrupted goes on to the bit. Reads the novels of LAPSE_DATA=DIR. Runs
# are in runs/pg19: delete one to begin it again. Writes experiments/pg19/results/NAME.json as each run ends, table.md and
# memory.svg.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
start_runs "$@"
need_texts novels/train.txt.gz novels/valid.txt.gz novels/test.txt.gz
.venv/bin/python experiments/pg19/run.py "$@"
.venv/bin/python experiments/pg19/figure.py
