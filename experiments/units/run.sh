#!/usr/bin/env bash
# What a token is: bytes, characters, words and subwords of the same text, the same model and number of updates, compared by bits
# per byte on the test part.
#
# Takes some 15 minutes on 2 cores. Reads enwik8-head.txt in LAPSE_DATA=DIR. Runs are in runs/units: those that were interrupted
# go on; delete it to begin again. Writes experiments/units/results.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
start "$@"
need_texts enwik8-head.txt
enwik8=$LAPSE_DATA/enwik8-head.txt
mkdir -p runs/units
tokenizer=runs/units/subwords.model
# The pieces come from the training part alone.
[[ -s $tokenizer ]] ||
  build/release/lapse tokenizer train --data "$enwik8" --fraction 0.9 --vocabulary 2048 --out "$tokenizer"
for unit in byte character word subword; do
  run=runs/units/$unit
  build/release/lapse train experiments/units/units.toml --data "$enwik8" --out "$run" --resume --set "data.unit=$unit" \
    --set "data.tokenizer=$([[ $unit == subword ]] && echo "$tokenizer")"
  build/release/lapse eval "$run" --json >"$run/test.part"
  mv "$run/test.part" "$run/test.json"
done
.venv/bin/python experiments/units/summarise.py
