#!/usr/bin/env bash
# 500 updates in float32 and in bfloat16 of two models, the same seed and text: validation losses, and their ratio.
#
# Takes some 15 minutes on 2 cores with AVX-512 BF16, which it needs. Reads enwik8-head.txt in LAPSE_DATA=DIR. Runs are in runs/bf16;
# what was interrupted goes on. Writes experiments/bf16/results.json.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
start "$@"
need_texts enwik8-head.txt
enwik8=$LAPSE_DATA/enwik8-head.txt
for precision in float32 bf16; do
  build/release/lapse train experiments/enwik8-head/expire_span.toml --data "$enwik8" --out "runs/bf16/enwik8-head-$precision" --resume \
    --set train.updates=500 --set train.validate_every=500 --set train.precision=$precision
done
for precision in float32 bf16; do
  build/release/lapse train experiments/bf16/step1.toml --data "$enwik8" --out "runs/bf16/step1-$precision" --resume --set train.precision=$precision
done
.venv/bin/python - <<'PY'
import json, pathlib, statistics
results = {}
for model in ("enwik8-head", "step1"):
    if not pathlib.Path(f"runs/bf16/{model}-bf16/metrics.jsonl").exists():
        continue
    runs = {}
    for precision in ("float32", "bf16"):
        lines = [json.loads(line) for line in pathlib.Path(f"runs/bf16/{model}-{precision}/metrics.jsonl").read_text().splitlines()]
        valid = [line for line in lines if line["split"] == "valid"][-1]
        times = [line["ms_per_update"] for line in lines if line["split"] == "train"]
        runs[precision] = {"update": valid["update"], "validation_bpb": valid["bpb"], "ms_per_update_median": round(statistics.median(times), 1)}
    ratio = runs["bf16"]["validation_bpb"] / runs["float32"]["validation_bpb"]
    results[model] = {**runs, "bf16_over_float32": ratio}
    print(f"{model}: {runs['float32']['validation_bpb']:.4f} and {runs['bf16']['validation_bpb']:.4f} bits per byte, {100 * (ratio - 1):+.2f} %")
pathlib.Path("experiments/bf16/results.json").write_text(json.dumps(results, indent=2) + "\n")
PY
