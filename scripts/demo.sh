#!/usr/bin/env bash
# Trains a small model that forgets on real English text, evaluates it, lets it write, and shows what it still remembers.
# At most 6 minutes on 2 cores after the build.
#
#   scripts/demo.sh          on the Jargon File, fetched once from Debian's package dict-jargon
#   scripts/demo.sh FILE     on your own text, plain or gzip
#
# Everything it makes lies in .demo/. NO_COLOR=1 leaves out the colours.
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

cd "$(dirname "${BASH_SOURCE[0]}")/.."
lapse=build/release/lapse
run=.demo/run
jargon=.demo/jargon.dict.dz # dictzip, which is gzip with an index in its header

# --- the text -------------------------------------------------------------------------------------------------------
# Unpacked, not installed: installing dict-jargon would start a network daemon.
fetch_jargon() {
  local scratch
  { command -v apt-get && command -v dpkg-deb; } >/dev/null ||
    die "the default text comes from a Debian package, and apt is not here. Bring your own: scripts/demo.sh FILE"
  scratch=$(mktemp -d)
  (
    cd "$scratch"
    exec >log 2>&1 </dev/null
    apt-get download dict-jargon || { update_lists && apt-get download dict-jargon; } # a fresh image has no lists
  ) || {
    tail -n 3 "$scratch/log" >&2
    rm -rf "$scratch"
    die "could not fetch Debian's package dict-jargon (offline?). Bring your own text: scripts/demo.sh FILE"
  }
  dpkg-deb -x "$scratch"/dict-jargon_*.deb "$scratch/unpacked"
  gzip -t <"$scratch/unpacked/usr/share/dictd/jargon.dict.dz"
  mv "$scratch/unpacked/usr/share/dictd/jargon.dict.dz" "$jargon.partial"
  mv "$jargon.partial" "$jargon"
  rm -rf "$scratch"
}

update_lists() {
  if [[ $(id -u) == 0 ]]; then
    apt-get update
  else
    sudo -n apt-get update
  fi
}

# --- the run --------------------------------------------------------------------------------------------------------
scripts/setup.sh

mkdir -p .demo
if [[ -z $text ]]; then
  if [[ -s $jargon ]]; then
    step "Text: the Jargon File, fetched earlier ($jargon)"
  else
    step "Text: the Jargon File, from Debian's package dict-jargon"
    fetch_jargon
  fi
  text=$PWD/$jargon
  prompt=$'hacker\n n.\n\n    [originally, someone who makes furniture with an axe] '
else
  step "Text: $text"
  prompt="The "
fi
step "Building (minutes the first time, seconds later)"
scripts/build.sh release lapse_program

quoted=${text//\\/\\\\} # as a TOML string: a path may hold anything
quoted="\"${quoted//\"/\\\"}\""

train=("$lapse" train examples/demo.toml --out "$run" --set "data.path=$quoted")
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
