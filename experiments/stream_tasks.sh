#!/usr/bin/env bash
# A task on streams, long_copy or collision: one run for each configuration of its folder, and the summary.
#
#   experiments/stream_tasks.sh long_copy      # T = 128 k, which shows memory; experiments/long_copy_lengths has what is learned
#   experiments/stream_tasks.sh collision easy_expire_span_1024 easy_fixed_span_256     # only these configurations
#
# Takes some hours on 2 cores for all. Needs no text. Runs are in runs/TASK: those that were interrupted go on; delete it to begin
# again. Writes experiments/TASK/results.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
help_or_begin "$@"
task=${1:-}
[[ $task == long_copy || $task == collision ]] || { printf '%s: error: which task, long_copy or collision? See --help\n' "$script" >&2; exit 2; }
shift
if (($# == 0)); then
  mapfile -t names < <(basename -s .toml experiments/"$task"/*.toml)
else
  names=("$@")
fi
for name in "${names[@]}"; do
  [[ -f experiments/$task/$name.toml ]] || die "there is no experiments/$task/$name.toml"
done
need_program
for name in "${names[@]}"; do
  run=runs/$task/$name
  build/release/lapse train "experiments/$task/$name.toml" --out "$run" --resume
  build/release/lapse eval "$run" --json >"$run/test.part"
  mv "$run/test.part" "$run/test.json"
done
.venv/bin/python experiments/stream_tasks.py "$task"
