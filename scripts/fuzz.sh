#!/usr/bin/env bash
# Reads what nobody wrote: runs the fuzz targets of tests/fuzz, under the address and undefined-behaviour sanitizers.
#
#   scripts/fuzz.sh [OPTION...] [TARGET...]     a minute of each target, or of these, two at a time
#
#   --seconds N   of each target; default: 60
#   --runs N      so many executions of each target; with --seconds too, whichever ends first
#   --jobs N      so many targets at a time; default: 2
#   --seed N      the same inputs in each run: draws from this seed, and begins with tests/fuzz/corpus alone
#   --json FILE   also write what was measured; targets of the file that did not run now stay in it
#   --list        name the targets
#
# Inputs that reach new code are kept in build/fuzz/corpus, and the next run begins with them too. A crash, a leak, more than
# 10 s or an allocation of more than 1 GB fails; it is said how to repeat it. Once it is mended, add the input to
# tests/fuzz/corpus/TARGET. Where build/release is missing or old, what the target `command` needs of it is built first.
set -euo pipefail

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; }
die() { printf 'fuzz: %s\n' "$1" >&2; exit 2; }

here=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
all=(command config json lines safetensors text tokenizer world)
targets=() length=() jobs=2 json="" seed=""

whole() { [[ $2 =~ ^[1-9][0-9]*$ ]] || die "$1 wants a whole number of at least 1, not '$2'"; }
while (($# > 0)); do
  case $1 in
    --seconds | --runs | --jobs | --json | --seed) (($# > 1)) || die "$1 wants a value" ;;&
    --seconds) whole "$1" "$2"; length+=("-max_total_time=$2"); shift ;;
    --runs) whole "$1" "$2"; length+=("-runs=$2"); shift ;;
    --jobs) whole "$1" "$2"; jobs=$2; shift ;;
    --seed) whole "$1" "$2"; seed=$2; shift ;;
    --json) json=$2; [[ $json == /* ]] || json=$here/$json; shift ;;
    --list) printf '%s\n' "${all[@]}"; exit 0 ;;
    -h | --help) usage; exit 0 ;;
    *) [[ " ${all[*]} " == *" $1 "* ]] || die "unknown target or option: $1; the targets are: ${all[*]}"
       targets+=("$1") ;;
  esac
  shift
done
((${#length[@]} > 0)) || length=(-max_total_time=60)
((${#targets[@]} > 0)) || targets=("${all[@]}")

[[ " ${targets[*]} " != *" command "* ]] || scripts/build.sh release lapse lapse_serve lapse_verbs
scripts/build.sh fuzz "${targets[@]/#/fuzz_}" lapse_sentencepiece

commit=$(git describe --always --exclude='*' --abbrev=10 --dirty=+changes 2>/dev/null || echo unknown)

# --- the runs -------------------------------------------------------------------------------------------------------
work=build/fuzz # corpora, inputs that crash, logs
corpora=$work/corpus
if [[ -n $seed ]]; then
  length+=("-seed=$seed")
  corpora=$work/corpus-of-seed
  rm -rf "$corpora"
fi
export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=0 UBSAN_OPTIONS=print_stacktrace=1

# What libFuzzer says goes to a log, whose last line is "fuzz.sh: STATUS MICROSECONDS".
run_target() {
  local target=$1 dictionary=() longest=4096 status=0 start=${EPOCHREALTIME/./}
  case $target in command | config | text) longest=1024 ;; esac # the time of these grows with the length
  [[ ! -e tests/fuzz/$target.dict ]] || dictionary=("-dict=tests/fuzz/$target.dict")
  mkdir -p "$corpora/$target" "$work/crashes" "$work/logs"
  "$work/fuzz_$target" "${length[@]}" -timeout=10 -malloc_limit_mb=1000 -rss_limit_mb=2048 -max_len="$longest" \
    -print_final_stats=1 "-artifact_prefix=$work/crashes/$target-" "${dictionary[@]}" \
    "$corpora/$target" "tests/fuzz/corpus/$target" >"$work/logs/$target.log" 2>&1 </dev/null || status=$?
  printf '\nfuzz.sh: %d %s\n' "$status" "$((${EPOCHREALTIME/./} - start))" >>"$work/logs/$target.log"
}

running=0
for target in "${targets[@]}"; do
  ((running < jobs)) || { wait -n; running=$((running - 1)); }
  run_target "$target" &
  running=$((running + 1))
done
wait

exec .venv/bin/python -B tests/fuzz/report.py "$work/logs" "$commit" "$json" "${targets[@]}"
