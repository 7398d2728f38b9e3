#!/usr/bin/env bash
# Is a memory of 16 rows enough because selective attention chooses which, or would any 16 do? The control of
# experiments/compare/run.sh's budgets: fixed spans of 16 and 32, and selective attention over the last 16 bytes alone, trained
# as long as the models there and read in the same way.
#
# Takes some 15 minutes on 2 quiet cores. Reads enwik8-head.txt in LAPSE_DATA=DIR. Runs are in runs/compare/control: what was
# interrupted goes on; delete it to begin again. Writes experiments/compare/results/control.json and control.md.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
start "$@"
need_texts enwik8-head.txt
for run in fixed_span_16 fixed_span_32 selective_attention_16; do
  span=${run##*_}
  case $run in
    fixed_span_*) config=experiments/enwik8-head/fixed_span_128.toml set=fixed_span.max_span=$span ;;
    *) config=experiments/compare/selective_attention.toml set=selective_attention.max_span=$span ;;
  esac
  out=runs/compare/control/$run
  build/release/lapse train "$config" --data "$LAPSE_DATA/enwik8-head.txt" --out "$out" --set "$set" --resume
  build/release/lapse eval "$out" --split valid --streams 64 --json >"$out.part"
  mv "$out.part" "$out.json"
done
.venv/bin/python experiments/compare/control.py
