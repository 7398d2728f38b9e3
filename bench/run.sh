#!/usr/bin/env bash
# Runs the benchmarks one after another and writes bench/results/NAME.json.
#
#   bench/run.sh                      all, with the settings that the results in README.md come from
#   bench/run.sh NAME [OPTION...]     one of attention, selective, step, generation, acting, methods, memory, rl, choices,
#                                     with these options, or those of the results
#
# LAPSE_BUILD: the build folder, by default build/release. On a busy machine the numbers mean nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${LAPSE_BUILD:-build/release}
names=(attention selective step generation acting methods memory rl choices)

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; }

# The settings that the results in README.md come from.
usual() {
  case $1 in
    attention) echo --repeat 75 ;;
    selective) echo --repeat 15 ;;
    generation) echo --tokens 200000 ;;
  esac
}

run() {
  local name=$1
  shift
  # shellcheck disable=SC2046
  (($# > 0)) || set -- $(usual "$name")
  "$build/bench/$name" --json "bench/results/$name.json" "$@"
  echo
}

case ${1:-} in
  "") ;;
  -h | --help) usage; exit 0 ;;
  *)
    if [[ " ${names[*]} " != *" $1 "* ]]; then
      printf 'run.sh: unknown benchmark: %s\n' "$1" >&2
      usage >&2
      exit 2
    fi
    ;;
esac
needed=("${1:-}")
(($# > 0)) || needed=("${names[@]}")
for name in "${needed[@]}"; do
  [[ -x $build/bench/$name ]] || {
    printf 'run.sh: %s is missing; build it with scripts/build.sh release bench_%s\n' "$build/bench/$name" "$name" >&2
    exit 1
  }
done
# Those in Python come last, after an hour: what they need is looked for now.
(($# > 0)) || for file in lapse liblapse_ops.so; do
  [[ -e $build/$file ]] || {
    printf 'run.sh: %s is missing; build it with scripts/build.sh release lapse_program lapse_ops\n' "$build/$file" >&2
    exit 1
  }
done
mkdir -p bench/results
if (($# > 0)); then
  run "$@"
else
  run attention
  run selective
  run step
  "$build/bench/step" --json bench/results/step_bf16.json --precision bf16 --no-eager
  "$build/bench/step" --json bench/results/step_instruction.json --case 4 --updates 6 --eager-updates 1
  "$build/bench/step" --json bench/results/step_words.json --case 5 --updates 3 --warm 1
  "$build/bench/step" --json bench/results/step_words_dense.json --case 5 --dense --updates 1 --warm 1
  run generation
  run acting
  run methods
  run memory
  run rl
  "$build/bench/rl" --json bench/results/rl_whole.json --eager-part 1024
  run choices
  .venv/bin/python bench/t5.py --updates 2 --json bench/results/t5.json
  .venv/bin/python bench/matrix.py --json bench/results/matrix.json
  .venv/bin/python bench/parallel.py --json bench/results/parallel.json
  PYTHONPATH=python LAPSE_OPS=$(realpath "$build/liblapse_ops.so") .venv/bin/python bench/python/decode.py \
    --out bench/results/python_decode.json
fi
