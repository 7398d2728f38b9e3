#!/usr/bin/env bash
# The instruction task in LIGHT: fixed spans of five lengths, Expire-Span with three seeds, Adaptive-Span and
# Compressive.
#
#   experiments/instruction/run.sh [--only TEXT] [--list]      # runs whose name contains TEXT; --list: how far they are
#
# Takes about 2 hours on 2 cores for a run of 20,000 updates in LIGHT, half an hour for one of 5,000 (_5k), a few
# minutes in the village. What was interrupted goes on to the bit. Reads light/complex_world_2020-09.json and
# c4-sample.txt in LAPSE_DATA=DIR, with --only village neither. Runs are in runs/instruction: delete one to begin it again. Writes
# experiments/instruction/results.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
start_runs "$@"
if [[ " $* " == *" --only village"* ]]; then need_program; else need_texts light/complex_world_2020-09.json c4-sample.txt; fi
.venv/bin/python experiments/instruction/run.py "$@"
