#!/usr/bin/env bash
# Selective against standard attention on windows of 512 bytes or words: six runs, budgets found at the standard model's loss, a
# short run of each for its times, and the summary.
#
# Takes some 40 minutes on 2 quiet cores. Reads enwik8-head.txt and wikitext-2/wiki.{train,valid,test}.tokens in LAPSE_DATA=DIR.
# Runs are in runs/selective; a run or a search that was interrupted goes on. Writes experiments/selective/results.json.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
start "$@"
need_texts enwik8-head.txt wikitext-2/wiki.{train,valid,test}.tokens

data_of() { # TEXT: the options that name it, in the array `data`
  data=(--data "$LAPSE_DATA/enwik8-head.txt")
  [[ $1 == enwik8 ]] || data=(--set "data.train=$LAPSE_DATA/wikitext-2/wiki.train.tokens"
    --set "data.valid=$LAPSE_DATA/wikitext-2/wiki.valid.tokens" --set "data.test=$LAPSE_DATA/wikitext-2/wiki.test.tokens")
}

for text in enwik8 wikitext2; do
  data_of $text
  tokens=$([[ $text == enwik8 ]] && echo 8192 || echo 2048)
  for name in standard selective selective_memory_loss; do
    build/release/lapse train "experiments/selective/${text}_$name.toml" "${data[@]}" --out "runs/selective/${text}_$name" --resume
  done
  for name in selective selective_memory_loss; do
    build/release/lapse prune "runs/selective/${text}_$name" --standard "runs/selective/${text}_standard" --tokens "$tokens"
  done
done
for text in enwik8 wikitext2; do
  data_of $text
  for name in standard selective selective_memory_loss; do
    rm -rf "runs/selective/${text}_$name-timing"
    build/release/lapse train "experiments/selective/${text}_$name.toml" "${data[@]}" --out "runs/selective/${text}_$name-timing" \
      --set "train.from=runs/selective/${text}_$name" --set train.updates=30 --set train.validate_every=0
  done
done
.venv/bin/python experiments/selective/summarise.py
