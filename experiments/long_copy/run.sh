#!/usr/bin/env bash
# Extremely long copy, one run per configuration, and the summary. Runs that were interrupted go on; delete runs/long_copy to begin again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
for config in experiments/long_copy/*.toml; do
  run=runs/long_copy/$(basename "$config" .toml)
  build/release/lapse train "$config" --out "$run" --resume
  build/release/lapse eval "$run" --json >"$run/test.json"
done
.venv/bin/python experiments/long_copy/summarise.py
