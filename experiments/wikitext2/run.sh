#!/usr/bin/env bash
# Perplexity per word against memory on WikiText-2, with adaptive input and softmax: fixed spans and Expire-Span with three
# alpha, with their own positions, and with the same for all, and a ramp without spans.
#
#   experiments/wikitext2/run.sh [--only TEXT] [--list]      # runs whose name contains TEXT; --list: how far they are
#
# Takes about 10 minutes on 2 cores for a run; what was interrupted goes on to the bit. Reads WikiText-2 of LAPSE_DATA=DIR. Runs
# are in runs/wikitext2: delete one to begin it again. Writes experiments/wikitext2/results/NAME.json as each run ends, table.md and
# memory.svg.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
start_runs "$@"
need_texts wikitext-2/wiki.train.tokens wikitext-2/wiki.valid.tokens wikitext-2/wiki.test.tokens
.venv/bin/python experiments/wikitext2/run.py "$@"
.venv/bin/python experiments/wikitext2/figure.py
