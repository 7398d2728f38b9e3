#!/usr/bin/env bash
# The five runs of this experiment (some 35 minutes on 2 quiet cores), a short one of each for its times, and the summary.
# A run that was interrupted goes on; delete runs/enwik8-head to begin again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
for name in expire_span fixed_span_128 fixed_span_512 adaptive_span compressive; do
  build/release/lapse train "experiments/enwik8-head/$name.toml" --out "runs/enwik8-head/$name" --resume
done
for name in expire_span fixed_span_128 fixed_span_512 adaptive_span compressive; do
  rm -rf "runs/enwik8-head/$name-timing"
  # Late in training spans have their final size, so the timing starts from the trained weights.
  build/release/lapse train "experiments/enwik8-head/$name.toml" --out "runs/enwik8-head/$name-timing" \
    --set "train.from=runs/enwik8-head/$name" --set train.updates=100 --set train.validate_every=0
done
.venv/bin/python experiments/enwik8-head/summarise.py
