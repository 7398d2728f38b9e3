#!/usr/bin/env bash
# Selective against standard attention on windows of 512 bytes or words: six runs, budgets found at the standard model's
# loss, and the summary. Some 40 minutes on 2 quiet cores. A run or a search that was interrupted goes on.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
for text in enwik8 wikitext2; do
  for name in standard selective selective_memory_loss; do
    build/release/lapse train "experiments/selective/${text}_$name.toml" --out "runs/selective/${text}_$name" --resume
  done
  for name in selective selective_memory_loss; do
    build/release/lapse prune "runs/selective/${text}_$name" --standard "runs/selective/${text}_standard" --tokens 8192
  done
done
.venv/bin/python experiments/selective/summarise.py
