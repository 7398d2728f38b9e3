#!/usr/bin/env bash
# A task on streams, long_copy or collision: one run for each configuration of its folder, and the summary. Some hours on 2
# cores in all; configurations after the task choose fewer. Runs that were interrupted go on; delete runs/TASK to begin again.
#
#   experiments/stream_tasks.sh long_copy
#   experiments/stream_tasks.sh collision easy_expire_span_1024 easy_fixed_span_256
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
task=${1:?long_copy or collision}
shift
if (($# == 0)); then
  mapfile -t names < <(basename -s .toml experiments/"$task"/*.toml)
else
  names=("$@")
fi
for name in "${names[@]}"; do
  run=runs/$task/$name
  build/release/lapse train "experiments/$task/$name.toml" --out "$run" --resume
  build/release/lapse eval "$run" --json >"$run/test.part"
  mv "$run/test.part" "$run/test.json"
done
.venv/bin/python experiments/stream_tasks.py "$task"
