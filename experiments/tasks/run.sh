#!/usr/bin/env bash
# Selective against standard attention on the tasks of A.1 and A.2, Variable Assignment also at two smaller sizes, three seeds each, and the summary. Hours on 2
# cores. Runs that were interrupted go on; delete runs/tasks to begin again. TASKS and SEEDS choose fewer.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
test_with() { # RUN NAME [OPTION...]: RUN/NAME.json
  build/release/lapse eval "$1" --json "${@:3}" >"$1/$2.part"
  mv "$1/$2.part" "$1/$2.json"
}
for task in ${TASKS:-copy parity variable_assignment_small variable_assignment_medium variable_assignment}; do
  for kind in selective standard; do
    for seed in ${SEEDS:-1 2 3}; do
      run=runs/tasks/${task}_${kind}_$seed
      build/release/lapse train "experiments/tasks/${task}_$kind.toml" --out "$run" --set "train.seed=$seed" --resume
      test_with "$run" test
      [[ $task != variable_assignment* ]] ||
        for set in 1 2 3; do # each set has two values of its own
          test_with "$run" "ood-$set" --ood-values 2 --test-seed "$set"
        done
    done
  done
done
.venv/bin/python experiments/tasks/summarise.py
