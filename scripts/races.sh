#!/usr/bin/env bash
# Looks for data races with ThreadSanitizer: the team of threads and the operators on it, memory, files and progress, Ctrl-C while a run
# trains, the server and its hostile clients.
#
#   scripts/races.sh [--json FILE] [PART...]    # all parts, or these: base operators server training agents serve hostile
#
# --json FILE: what ran, and how many reports there were; parts of the file that did not run now stay in it. Takes about half an hour on
# 2 cores, most of it the build of a second program (build/tsan). Exits with 1 if there was a report.
#
# libtorch's own code is not instrumented, and GCC's OpenMP not understood: LLVM's takes its place, whose tool Archer tells the sanitizer
# where threads begin and meet. Reports from within libraries that are not ours are left out (scripts/races.supp).
set -euo pipefail
case ${1:-} in -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;; esac
here=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
all=(base operators server training agents serve hostile)
json="" parts=()
while (($# > 0)); do
  case $1 in
    --json) json=${2:?races: --json wants a file}; [[ $json == /* ]] || json=$here/$json; shift 2 ;;
    *) [[ " ${all[*]} " == *" $1 "* ]] || { printf 'races: unknown part or option: %s; see --help\n' "$1" >&2; exit 2; }
       parts+=("$1"); shift ;;
  esac
done
((${#parts[@]} > 0)) || parts=("${all[@]}")

llvm=/usr/lib/llvm-14/lib
for library in libomp.so.5 libarcher.so; do
  [[ -e $llvm/$library ]] || { printf 'races: %s is missing; scripts/setup.sh installs it\n' "$llvm/$library" >&2; exit 1; }
done
declare -A target=([base]=base_tests [operators]=ops_tests [server]=serve_tests)
targets=()
for part in "${parts[@]}"; do targets+=("${target[$part]:-lapse_program}"); done
scripts/build.sh tsan "${targets[@]}"

reports=$(mktemp -d)
trap 'rm -rf "$reports"' EXIT
export OMP_NUM_THREADS=4 OMP_TOOL_LIBRARIES=$llvm/libarcher.so
export TSAN_OPTIONS="suppressions='$PWD/scripts/races.supp' ignore_noninstrumented_modules=1 exitcode=0 log_path=$reports/report"

results=()
failed=0
watch() { # NAME COMMAND...
  local name=$1 before after status=0
  shift
  before=$(cat "$reports"/report* 2>/dev/null | grep -c '^WARNING: ThreadSanitizer' || true)
  "$@" >"$reports/log" 2>&1 || status=$?
  after=$(cat "$reports"/report* 2>/dev/null | grep -c '^WARNING: ThreadSanitizer' || true)
  printf '%-44s %s reports, %s\n' "$name" $((after - before)) "$( ((status == 0)) && echo passed || echo "status $status")"
  ((status == 0)) || { tail -n 30 "$reports/log" >&2; failed=1; }
  ((after == before)) || failed=1
  results+=("$name" $((after - before)) "$status")
}
with_openmp() { LD_PRELOAD=$llvm/libomp.so.5 "$@"; }
program_test() { # FILE TEST...
  LAPSE_PROGRAM=$PWD/scripts/races_program.sh .venv/bin/python -B "tests/$1.py" "${@:2}"
}

run_part() {
  case $1 in
    base) watch "files, progress, environments on threads" build/tsan/base_tests --gtest_brief=1 ;;
    # A test that wants its process to die by a wild read meets the sanitizer's own words.
    operators) watch "the team of threads, operators, memory" with_openmp build/tsan/ops_tests --gtest_brief=1 --gtest_filter='-*DeathTest*' ;;
    server) watch "the server's parts" with_openmp build/tsan/serve_tests --gtest_brief=1 ;;
    training) watch "training, interrupted and resumed" program_test resume_test Resume.test_interrupted ;;
    agents)
      watch "an agent's threads" program_test agent_cli_test
      watch "agents that threads share" scripts/races_program.sh train examples/corridor.toml --out "$reports/agents" --set train.updates=3 --threads 2
      watch "an agent that is watched" program_test play_test
      ;;
    serve) watch "the server" program_test serve_test ;;
    hostile) watch "the server's hostile clients" program_test serve_hostile_test ;;
  esac
}
for part in "${parts[@]}"; do run_part "$part"; done

cat "$reports"/report* >&2 2>/dev/null || true
[[ -z $json ]] || .venv/bin/python - "$json" "$(git rev-parse --short HEAD)" "${results[@]}" <<'PYTHON'
import json, pathlib, sys
file, commit, *rest = sys.argv[1:]
path = pathlib.Path(file)
ran = {one["what"]: one for one in json.loads(path.read_text())["ran"]} if path.exists() else {}
for what, reports, status in zip(rest[::3], rest[1::3], rest[2::3]):
    ran[what] = {"what": what, "reports": int(reports), "status": int(status), "commit": commit}
path.write_text(json.dumps({"ran": list(ran.values())}, indent=1) + "\n")
PYTHON
exit $failed
