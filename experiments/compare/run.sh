#!/usr/bin/env bash
# Every trainable method on enwik8-head with the same base model and updates, and then memory budgets: selective attention's
# pruning against the baselines that read the model with a fixed span.
#
# Takes some 70 minutes on 2 quiet cores from nothing, with experiments/enwik8-head/run.sh, which makes the first five runs. Reads
# enwik8-head.txt in LAPSE_DATA=DIR. Runs are in runs/compare: what was interrupted goes on; delete it to begin again. Writes
# experiments/compare/results.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
start "$@"
need_texts enwik8-head.txt
enwik8=$LAPSE_DATA/enwik8-head.txt
experiments/enwik8-head/run.sh
for config in experiments/compare/*.toml; do
  build/release/lapse train "$config" --data "$enwik8" --out "runs/compare/$(basename "$config" .toml)" --resume
done
for config in experiments/compare/*.toml; do
  name=$(basename "$config" .toml)
  rm -rf "runs/compare/$name-timing"
  build/release/lapse train "$config" --data "$enwik8" --out "runs/compare/$name-timing" \
    --set "train.from=runs/compare/$name" --set train.updates=100 --set train.validate_every=0
done

# 64 streams: methods that evict one row at a time read token by token.
read_with() { # FILE RUN [OPTION...]: the numbers of the part kept for validation, unless they are there and newer than the model
  local file=runs/compare/budgets/$1.json run=$2
  shift 2
  local checkpoints=("$run"/checkpoints/*.safetensors)
  [[ -s $file && $file -nt ${checkpoints[-1]} ]] && return
  echo "budgets: $(basename "$file" .json)"
  build/release/lapse eval "$run" --split valid --streams 64 --json "$@" >"$file.part"
  mv "$file.part" "$file"
}
mkdir -p runs/compare/budgets
read_with standard runs/enwik8-head/fixed_span_512
read_with selective_attention runs/compare/selective_attention
for budget in 8 16 32 64 128 256; do
  read_with "selective_attention-$budget" runs/compare/selective_attention --budget "$budget"
  for method in local sink_window strided local_global h2o tova; do
    read_with "$method-$budget" runs/enwik8-head/fixed_span_512 --method "$method" --budget "$budget"
  done
done
.venv/bin/python experiments/compare/summarise.py
