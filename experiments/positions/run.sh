#!/usr/bin/env bash
# Selective against standard attention on windows of 512 bytes or words, with learned, relative and bucketed positions,
# and on tasks with relative ones: how much of the gap is the positions'?
#
#   experiments/positions/run.sh [--only TEXT] [--list]      # runs whose name contains TEXT; --list: how far they are
#
# Takes some 10 minutes on one of 2 cores for a text, 15 for Variable Assignment (AVX-512 BF16), 2 for parity; what was
# interrupted goes on to the bit. Reads enwik8-head.txt and wikitext-2/wiki.{train,valid,test}.tokens in LAPSE_DATA=DIR.
# Runs are in runs/positions: delete one to begin it again. Writes experiments/positions/results/NAME.json as each run
# ends, and table.md.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
start_runs "$@"
need_texts enwik8-head.txt wikitext-2/wiki.{train,valid,test}.tokens
.venv/bin/python experiments/positions/run.py "$@"
