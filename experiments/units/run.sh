#!/usr/bin/env bash
# What a token is: bytes, characters, words and subwords of the same text, the same model and number of updates, compared by bits per
# byte on the test part. Some 15 minutes on 2 cores. Runs that were interrupted go on; delete runs/units to begin again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
mkdir -p runs/units
tokenizer=runs/units/subwords.model
# The pieces come from the training part alone.
[[ -s $tokenizer ]] ||
  build/release/lapse tokenizer train --data ../shared/data/enwik8-head.txt --fraction 0.9 --vocabulary 2048 --out "$tokenizer"
for unit in byte character word subword; do
  run=runs/units/$unit
  build/release/lapse train experiments/units/units.toml --out "$run" --resume --set "data.unit=$unit" \
    --set "data.tokenizer=$([[ $unit == subword ]] && echo "$tokenizer")"
  build/release/lapse eval "$run" --json >"$run/test.part"
  mv "$run/test.part" "$run/test.json"
done
.venv/bin/python experiments/units/summarise.py
