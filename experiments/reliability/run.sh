#!/usr/bin/env bash
# What docs/reliability.md promises, in figures: kills, faults of the disk, too little memory, long streams, fuzzing, data races.
#
#   experiments/reliability/run.sh
#
# Takes about 5 hours on 2 cores, most of it fuzzing and streams. Needs no text. Writes experiments/reliability/results/NAME.json for each.
# Each is a program with a --help of its own: tests/torture/*.py, scripts/fuzz.sh, scripts/races.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
start "$@"
need_program
results=experiments/reliability/results
.venv/bin/python -B tests/torture/kills.py --kills 1000 --json $results/kills.json
.venv/bin/python -B tests/torture/faults.py --json $results/faults.json
.venv/bin/python -B tests/torture/starve.py --json $results/memory.json
.venv/bin/python -B tests/torture/stream.py --json $results/stream.json
scripts/fuzz.sh --runs 10000000 --json $results/fuzz.json
scripts/races.sh --json $results/races.json
