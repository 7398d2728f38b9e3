#!/usr/bin/env bash
# Installs what is missing, builds, and runs all tests.
#
#   scripts/test.sh           everything: format, house rules, build, tests, then the sanitizers on the code without torch
#                             and on memory + operators, half a minute of each fuzz target, and all kernels for GPUs compiled anew
#                             (where the rest took more than 20 minutes a fifth of them, each commit another one)
#   scripts/test.sh --quick   the same without the sanitizers and fuzzing
#   scripts/test.sh --asan    everything built and run under the address and undefined-behaviour sanitizers instead
#
# Stops at the first stage that fails. CMAKE_BUILD_PARALLEL_LEVEL sets how many files are compiled at a time.
set -euo pipefail

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; }

mode=all
case ${1:-} in
  "") ;;
  --quick) mode=quick ;;
  --asan) mode=asan ;;
  -h | --help) usage; exit 0 ;;
  *) printf 'test: unknown argument: %s\n' "$1" >&2; usage >&2; exit 2 ;;
esac
(($# <= 1)) || { usage >&2; exit 2; }

cd "$(dirname "${BASH_SOURCE[0]}")/.."
scratch=$(mktemp -d)

# --- stages: a title each, with the time it took; a failure names its stage -----------------------------------------
stage=""
stage_start=0

close_stage() { [[ -z $stage ]] || printf '   %s: ok, %d s\n' "$stage" $((SECONDS - stage_start)); }

title() {
  close_stage
  stage=$1
  stage_start=$SECONDS
  printf '== %s\n' "$stage"
}

finish() {
  local status=$?
  rm -rf "$scratch"
  ((status == 0)) || printf 'test: FAILED in stage "%s" after %d s\n' "$stage" $SECONDS >&2
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Says nothing unless the command fails.
quietly() {
  "$@" >"$scratch/quiet.log" 2>&1 || {
    local status=$?
    cat "$scratch/quiet.log"
    return $status
  }
}

# --- what the stages do ---------------------------------------------------------------------------------------------
run_ctest() { # PRESET [what ctest takes]
  ctest --test-dir "build/$1" --output-on-failure --parallel 2 --no-tests=error "${@:2}" | tee "$scratch/ctest-$1.log"
}

# The closing lines of all tests, again: what ran after them must not hide how they ended.
repeat_ctest_result() { sed -n '/% tests passed/,$p' "$scratch/ctest-release.log"; }

# Minutes for all: where the whole run would exceed its half hour a share, another one with each commit. Some of each
# kind are among the tests.
compile_kernels() {
  local share=0/1
  if ((SECONDS > 1200)); then
    share=$((16#$(git rev-parse --short=4 HEAD 2>/dev/null || echo 0) % 5))/5
    echo "   share $share: this machine has taken $((SECONDS / 60)) minutes already"
  fi
  if .venv/bin/python -c 'import triton' 2>/dev/null; then
    quietly env LAPSE_KERNELS="$share" .venv/bin/python -B tests/kernel_build_test.py
  else
    echo "   left out: there is no Triton"
  fi
}

export UBSAN_OPTIONS=print_stacktrace=1

run_without_torch() { run_ctest "$1" --tests-regex '^(base|tensorboard)_tests_'; } # with leaks: nothing here may leak

# libtorch leaks by design at exit
run_with_torch() { ASAN_OPTIONS=detect_leaks=0 run_ctest asan --tests-regex '^ops_tests_[0-9]$'; }

check_format() {
  local folder folders=()
  for folder in lapse bench tests examples; do
    [[ ! -d $folder ]] || folders+=("$folder")
  done
  find "${folders[@]}" \( -name '*.h' -o -name '*.cpp' \) -print0 | xargs -0 -r clang-format --dry-run -Werror
}

check_house() {
  quietly .venv/bin/python scripts/check_house_test.py
  .venv/bin/python scripts/check_house.py
}

check_docs() {
  quietly .venv/bin/python -B scripts/check_docs_test.py
  quietly .venv/bin/python -B experiments/summaries_test.py
  .venv/bin/python scripts/check_docs.py
}

# --- the run --------------------------------------------------------------------------------------------------------
title "set-up"
LAPSE_BROWSER=1 scripts/setup.sh

title "format (to mend: clang-format -i FILE)"
check_format

title "house rules"
check_house

title "documents, and the tables of committed results"
check_docs

if [[ $mode == asan ]]; then
  title "build, with sanitizers"
  scripts/build.sh asan
  title "tests without torch, with sanitizers and leak detection"
  run_without_torch asan
  title "all tests, with sanitizers"
  ASAN_OPTIONS=detect_leaks=0 run_ctest asan
else
  title "build"
  scripts/build.sh release
  title "tests"
  run_ctest release
  title "the Python package: built, installed, tested"
  quietly scripts/python_package.sh
  if [[ $mode == all ]]; then
    # The fuzz targets need clang, so what has no torch is built by it once, for them and for its tests.
    title "build of the sanitized tests and the fuzz targets"
    scripts/build.sh fuzz base_tests tensorboard_tests fuzz_targets
    scripts/build.sh asan ops_tests
    title "tests without torch, with sanitizers and leak detection"
    run_without_torch fuzz
    title "tests of memory and operators, with sanitizers"
    run_with_torch
    title "half a minute of each fuzz target, always with the same inputs"
    scripts/fuzz.sh --seed 1 --jobs 4 --seconds 30
    title "kernels for GPUs, compiled and compared with their record"
    compile_kernels
  fi
fi
if [[ $mode == all ]]; then
  close_stage
  repeat_ctest_result
fi
printf 'test: all passed in %d s\n' $SECONDS
