#!/usr/bin/env bash
# Expire-Span, two fixed spans, Adaptive-Span and Compressive on the first 4.2 MB of enwik8, a short run of each for its times,
# and the summary.
#
# Takes some 35 minutes on 2 quiet cores. Reads enwik8-head.txt in LAPSE_DATA=DIR. Runs are in runs/enwik8-head: what was
# interrupted goes on; delete it to begin again. Writes experiments/enwik8-head/results.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
start "$@"
need_texts enwik8-head.txt
enwik8=$LAPSE_DATA/enwik8-head.txt
for name in expire_span fixed_span_128 fixed_span_512 adaptive_span compressive; do
  build/release/lapse train "experiments/enwik8-head/$name.toml" --data "$enwik8" --out "runs/enwik8-head/$name" --resume
done
for name in expire_span fixed_span_128 fixed_span_512 adaptive_span compressive; do
  rm -rf "runs/enwik8-head/$name-timing"
  # Late in training spans have their final size, so the timing starts from the trained weights.
  build/release/lapse train "experiments/enwik8-head/$name.toml" --data "$enwik8" --out "runs/enwik8-head/$name-timing" \
    --set "train.from=runs/enwik8-head/$name" --set train.updates=100 --set train.validate_every=0
done
.venv/bin/python experiments/enwik8-head/summarise.py
