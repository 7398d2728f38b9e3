#!/usr/bin/env bash
# On a machine with an NVIDIA GPU: are the kernels right there, and how fast? Needs a python3 with PyTorch 2.11 (and its
# Triton); where cmake, ninja and a compiler are there too, also the library in C++, which needs no other package.
#
#   scripts/gpu_check.sh [FOLDER]     results go to FOLDER (default: build/gpu), first of all the card's name
#   LAPSE_PYTHON=PYTHON               the interpreter; default .venv/bin/python where there is one, else python3
#   LAPSE_MINUTES=8                   for the benchmark
set -euo pipefail
case ${1:-} in -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;; esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=${1:-build/gpu}
mkdir -p "$out"
python=${LAPSE_PYTHON:-python3}
[[ -n ${LAPSE_PYTHON:-} || ! -x .venv/bin/python ]] || python=.venv/bin/python

say() { printf 'gpu_check: %s\n' "$*"; }
failed=0

"$python" -c 'import sys, torch, triton
print("torch", torch.__version__, "triton", triton.__version__)
if not torch.cuda.is_available(): sys.exit("gpu_check: PyTorch sees no NVIDIA GPU here")
print(torch.cuda.get_device_name(), torch.cuda.get_device_capability())' | tee "$out/machine.txt"

say "times and correctness against formulas in float64 (bench/gpu.py)"
timeout $((60 * ${LAPSE_MINUTES:-8} + 420)) "$python" bench/gpu.py --out "$out/gpu.json" --minutes "${LAPSE_MINUTES:-8}" 2>&1 | tee "$out/bench.txt" || failed=1

if ! command -v cmake >/dev/null || ! command -v ninja >/dev/null; then
  say "no cmake or ninja here: the library in C++ and the tests against its references are left out"
  exit $failed
fi
say "the operators' libraries"
torch=$("$python" -c 'import os, torch; print(os.path.dirname(torch.__file__))')
cmake -S . -B build/operators -G Ninja -DCMAKE_BUILD_TYPE=Release -DLAPSE_OPERATORS_ONLY=ON -DLAPSE_TORCH_DIR="$torch" \
  >"$out/cmake.txt" 2>&1 || { tail -n 20 "$out/cmake.txt"; exit 1; }
cmake --build build/operators >"$out/build.txt" 2>&1 || { tail -n 40 "$out/build.txt"; exit 1; }

say "the kernels against the references (LAPSE_GPU=1)"
for test in ramp_triton_test selective_triton_test; do
  LAPSE_GPU=1 LAPSE_OPS=build/operators/liblapse_ops.so "$python" -B "tests/$test.py" 2>&1 | tee "$out/$test.txt" || failed=1
done
say "the library in C++ with compiled kernels, by PyTorch's operators"
"$python" -B lapse/ops/cuda/build_kernels.py build/operators/lapse_kernels.bin \
  --archs "$("$python" -c 'import torch; m = torch.cuda.get_device_capability(); print(90 if m[0] == 9 else 80)')" \
  2>&1 | tee "$out/kernels.txt" || failed=1
LAPSE_OPERATORS=build/operators "$python" -B tests/cuda_gpu_test.py 2>&1 | tee "$out/cuda_gpu_test.txt" || failed=1
((failed == 0)) && say "all passed; results in $out" || say "FAILED; see $out"
exit $failed
