#!/usr/bin/env bash
# Selective against standard attention on the three tasks of A.1 and A.2, three seeds each, and the summary. Hours on 2
# cores. Runs that were interrupted go on; delete runs/tasks to begin again. TASKS and SEEDS choose fewer.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
for task in ${TASKS:-copy parity variable_assignment}; do
  for kind in selective standard; do
    for seed in ${SEEDS:-1 2 3}; do
      run=runs/tasks/${task}_${kind}_$seed
      build/release/lapse train "experiments/tasks/${task}_$kind.toml" --out "$run" --set "train.seed=$seed" --resume
      build/release/lapse eval "$run" --json >"$run/test.json"
      [[ $task != variable_assignment ]] ||
        for set in 1 2 3; do # each set has two values of its own
          build/release/lapse eval "$run" --ood-values 2 --test-seed "$set" --json >"$run/ood-$set.json"
        done
    done
  done
done
.venv/bin/python experiments/tasks/summarise.py
