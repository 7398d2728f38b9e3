#!/usr/bin/env bash
# What the models of the Expire-Span paper's tables take on this machine: parameters, memory and time per update of every row of
# experiments/paper/rows.toml, by `lapse train --dry-run`. Nothing is trained.
#
# Takes some 20 minutes on 2 cores. Reads enwik8-head.txt, novels/, light/ and c4-sample.txt in LAPSE_DATA=DIR. Each row's answer
# is in runs/paper and not asked for again; delete it to begin again. Writes experiments/paper/results.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
start "$@"
need_texts enwik8-head.txt novels/{train,valid,test}.txt.gz light/complex_world_2020-09.json c4-sample.txt
.venv/bin/python experiments/paper/run.py
