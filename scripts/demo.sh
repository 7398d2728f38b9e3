#!/usr/bin/env bash
# Trains a small model that forgets on real English text, evaluates it, lets it write, and shows what it still remembers.
# At most 6 minutes on 2 cores after the build.
#
#   scripts/demo.sh          on the Jargon File, fetched once by scripts/data.sh
#   scripts/demo.sh FILE     on your own text, plain or gzip
#
# The run lies in .demo/, the text in data/. NO_COLOR=1 leaves out the colours.
set -euo pipefail

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; }
step() { printf '\n== %s\n' "$*"; }
die() { printf 'demo: error: %s\n' "$*" >&2; exit 1; }

(($# <= 1)) || { usage >&2; exit 2; }
text=""
case ${1:-} in
  "") ;;
  -h | --help) usage; exit 0 ;;
  -*) printf 'demo: unknown option: %s\n' "$1" >&2; usage >&2; exit 2 ;;
  *)
    [[ -f $1 && -r $1 ]] || die "$1: no such file, or not readable"
    [[ -s $1 ]] || die "$1 is empty"
    text=$(realpath "$1")
    ;;
esac

data=$(realpath -m "${LAPSE_DATA:-$(dirname "${BASH_SOURCE[0]}")/../data}")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export LAPSE_DATA=$data # scripts/data.sh is to mean the same folder
lapse=build/release/lapse
run=.demo/run

# --- the run --------------------------------------------------------------------------------------------------------
scripts/setup.sh

if [[ -z $text ]]; then
  step "Text: the Jargon File, from Debian's package dict-jargon"
  scripts/data.sh jargon || die "no text; bring your own: scripts/demo.sh FILE"
  text=$data/jargon.txt
  prompt=$'hacker\n n.\n\n    [originally, someone who makes furniture with an axe] '
else
  step "Text: $text"
  prompt="The "
fi
step "Building (minutes the first time, seconds later)"
scripts/build.sh release lapse_program

train=("$lapse" train examples/demo.toml --out "$run" --data "$text")
resume=$(printf '%q ' "${train[@]}")
step "Training (a few minutes; Ctrl-C saves and stops)"
rm -rf "$run"
status=0
trap 'status=130' INT # lapse saves and leaves by itself
"${train[@]}" || status=$?
trap - INT
if ((status != 0)); then
  printf '\nThe training did not finish.\n' >&2
  [[ -z $(find "$run" -name '*.safetensors' 2>/dev/null) ]] ||
    printf 'To go on from its last checkpoint:\n  %s--resume\n' "$resume" >&2
  exit $status
fi
printf 'Trained; the run is in %s. An interrupted run goes on with:\n  %s--resume\n' "$run" "$resume"

step "Evaluating on the part of the text that it has not seen"
"$lapse" eval "$run" --data "$text" --split test

step "Writing; characters that the model still remembers at the end are highlighted"
colour=(--color always) # also into a pipe or a log: the highlighting is what this shows
[[ -z ${NO_COLOR:-} ]] || colour=()
"$lapse" generate "$run" --prompt "$prompt" --tokens 400 --remembered "${colour[@]}"
printf '\n'
