#!/usr/bin/env bash
# Object Collision, one run per configuration, and the summary. Runs that were interrupted go on; delete runs/collision to begin again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
for config in experiments/collision/*.toml; do
  run=runs/collision/$(basename "$config" .toml)
  build/release/lapse train "$config" --out "$run" --resume
  build/release/lapse eval "$run" --json >"$run/test.json"
done
.venv/bin/python experiments/collision/summarise.py
