#!/usr/bin/env bash
# Selective against standard attention on windows of 512 bytes or words: six runs, budgets found at the standard model's
# loss, a short run of each for its times, and the summary. Some 40 minutes on 2 quiet cores. A run or a search that was interrupted goes on.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
for text in enwik8 wikitext2; do
  tokens=$([[ $text == enwik8 ]] && echo 8192 || echo 2048)
  for name in standard selective selective_memory_loss; do
    build/release/lapse train "experiments/selective/${text}_$name.toml" --out "runs/selective/${text}_$name" --resume
  done
  for name in selective selective_memory_loss; do
    build/release/lapse prune "runs/selective/${text}_$name" --standard "runs/selective/${text}_standard" --tokens "$tokens"
  done
done
for text in enwik8 wikitext2; do
  for name in standard selective selective_memory_loss; do
    rm -rf "runs/selective/${text}_$name-timing"
    build/release/lapse train "experiments/selective/${text}_$name.toml" --out "runs/selective/${text}_$name-timing" \
      --set "train.from=runs/selective/${text}_$name" --set train.updates=30 --set train.validate_every=0
  done
done
.venv/bin/python experiments/selective/summarise.py
