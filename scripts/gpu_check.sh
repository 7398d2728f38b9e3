#!/usr/bin/env bash
# On a machine with an NVIDIA GPU: are the kernels right there, and how fast? Needs a python3 with PyTorch 2.11 (and its
# Triton), and for Triton a C compiler and Python.h. The tests need the library in C++ too: cmake, ninja and a C++
# compiler, no other package. What is missing is said first, and what that leaves out.
#
#   scripts/gpu_check.sh [FOLDER]     results go to FOLDER (default: build/gpu), first of all the card's name
#   LAPSE_PYTHON=PYTHON               the interpreter; default .venv/bin/python where there is one, else python3
#   LAPSE_MINUTES=8                   whole minutes, after which the benchmark begins no further case. Building the
#                                     library, compiling kernels and the tests come on top; how long they take depends
#                                     on the machine
#
# Ends with 0 where everything passed, with 1 where something failed or there is no GPU, and with 3 where what was run
# passed and something was left out.
set -euo pipefail
case ${1:-} in -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;; esac
here=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
minutes=${LAPSE_MINUTES:-8}
[[ $minutes =~ ^[1-9][0-9]{0,4}$ ]] || { echo "gpu_check: LAPSE_MINUTES must be whole minutes, 1 or more, got '$minutes'" >&2; exit 1; }
out=${1:-$PWD/build/gpu}
[[ $out == /* ]] || out=$here/$out
mkdir -p "$out"
python=${LAPSE_PYTHON:-python3}
[[ $python != */* || $python == /* ]] || python=$here/$python
[[ -n ${LAPSE_PYTHON:-} || ! -x .venv/bin/python ]] || python=.venv/bin/python
libraries=build/operators

say() { printf 'gpu_check: %s\n' "$*"; }
have() { command -v "$1" >/dev/null; }
failed=0
left_out=()
leave_out() { # WHAT WHY
  say "$2, so left out: $1"
  left_out+=("$1")
}

# Runs a command, shows what it prints and keeps it in a file of $out. A failure is remembered.
run() { # FILE COMMAND ...
  local file=$1
  shift
  "$@" 2>&1 | tee "$out/$file" || { say "failed: $*"; failed=1; return 1; }
}

"$python" -c 'import sys, torch, triton
print("torch", torch.__version__, "triton", triton.__version__)
if not torch.cuda.is_available(): sys.exit("gpu_check: PyTorch sees no NVIDIA GPU here")
print(torch.cuda.get_device_name(), torch.cuda.get_device_capability())' | tee "$out/machine.txt"

# --- what is there ---------------------------------------------------------------------------------------------------
builds=1
cxx=${CXX:-c++}
for tool in cmake ninja "${cxx%% *}"; do
  have "$tool" || { say "there is no $tool here"; builds=0; }
done
launches=1 # Triton compiles its launcher with these when a kernel is first used
if [[ -n ${CC:-} ]]; then compilers=("$CC"); else compilers=(gcc clang); fi
have "${compilers[0]}" || have "${compilers[-1]}" || { say "there is no C compiler here (${compilers[*]})"; launches=0; }
"$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include", "posix_prefix"), "Python.h")))' ||
  { say "there is no Python.h of $python here (python3-dev)"; launches=0; }
((builds)) || leave_out "every test against the references" "the library in C++ cannot be built"
((launches)) || leave_out "what Triton launches (the kernels' tests from Python, the benchmark)" "Triton cannot compile its launcher"

# --- the library, and the tests --------------------------------------------------------------------------------------
build() {
  local torch
  torch=$("$python" -c 'import os, torch; print(os.path.dirname(torch.__file__))')
  cmake -S . -B $libraries -G Ninja -DCMAKE_BUILD_TYPE=Release -DLAPSE_OPERATORS_ONLY=ON -DLAPSE_TORCH_DIR="$torch" &&
    cmake --build $libraries
}

if ((builds)); then
  say "the operators' libraries (what this prints is in $out/build.txt)"
  build >"$out/build.txt" 2>&1 || { tail -n 40 "$out/build.txt"; say "failed: the build"; failed=1; builds=0; }
fi
if ((builds && launches)); then
  say "the kernels against the references (LAPSE_GPU=1)"
  for test in ramp_triton_test selective_triton_test; do
    run "$test.txt" env LAPSE_GPU=1 LAPSE_OPS=$libraries/liblapse_ops.so "$python" -B "tests/$test.py" || true
  done
fi
if ((builds)); then
  say "the library in C++ with compiled kernels, by PyTorch's operators"
  arch=$("$python" -c 'import torch; print(90 if torch.cuda.get_device_capability()[0] == 9 else 80)')
  if run kernels.txt "$python" -B lapse/ops/cuda/build_kernels.py $libraries/lapse_kernels.bin --archs "$arch"; then
    run cuda_gpu_test.txt env LAPSE_OPERATORS=$libraries "$python" -B tests/cuda_gpu_test.py || true
  fi
fi

# --- the benchmark ---------------------------------------------------------------------------------------------------
if ((launches)); then
  say "correctness against formulas in float64, and times (bench/gpu.py)"
  # Some more seconds for the last case.
  run bench.txt timeout $((60 * minutes + 420)) "$python" bench/gpu.py --out "$out/gpu.json" --minutes "$minutes" || true
fi

((failed == 0)) || { say "FAILED; see $out"; exit 1; }
((${#left_out[@]} == 0)) || { say "INCOMPLETE; what was run passed, left out: $(printf '%s; ' "${left_out[@]}")results in $out"; exit 3; }
say "all passed; results in $out"
