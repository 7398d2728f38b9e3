#!/usr/bin/env bash
# Selective against standard attention on the tasks of A.1 and A.2, Variable Assignment also at a smaller size, three seeds each,
# and the summary.
#
# Takes two hours on 2 cores. Needs no text; variable_assignment needs AVX-512 BF16. Runs are in runs/tasks: those that were
# interrupted go on; delete it to begin again. Writes experiments/tasks/results. To make fewer runs:
#
#   TASKS="copy parity" SEEDS=1 experiments/tasks/run.sh
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
start "$@"
need_program
test_with() { # RUN NAME [OPTION...]: RUN/NAME.json
  build/release/lapse eval "$1" --json "${@:3}" >"$1/$2.part"
  mv "$1/$2.part" "$1/$2.json"
}
declare -A method=([selective]=selective_attention [standard]=fixed_span)
for task in ${TASKS:-copy parity variable_assignment_small variable_assignment}; do
  for kind in selective standard; do
    for seed in ${SEEDS:-1 2 3}; do
      run=runs/tasks/${task}_${kind}_$seed
      build/release/lapse train "experiments/tasks/$task.toml" --out "$run" --resume --set "train.seed=$seed" \
        --set "forgetting.method=${method[$kind]}"
      test_with "$run" test
      [[ $task != variable_assignment* ]] ||
        for set in 1 2 3; do # each set has two values of its own
          test_with "$run" "ood-$set" --ood-values 2 --test-seed "$set"
        done
    done
  done
done
.venv/bin/python experiments/tasks/summarise.py
