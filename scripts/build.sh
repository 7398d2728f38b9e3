#!/usr/bin/env bash
# Configures and builds: scripts/build.sh PRESET [TARGET...], with the presets release, debug, asan, tsan, fuzz. Quiet unless it
# is on a terminal or something fails. CMAKE_BUILD_PARALLEL_LEVEL sets how many files are compiled at a time.
set -euo pipefail
case ${1:-} in -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;; esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=${1:?usage: scripts/build.sh PRESET [TARGET...]}
shift

# As many compilers as there are cores, but not more than fit: torch's headers take one up to 1.5 GB.
compile_jobs() {
  local by_memory cores
  cores=$(nproc)
  by_memory=$(awk '/^MemAvailable/ { print int($2 / 2000000) }' /proc/meminfo)
  ((by_memory >= 1)) || by_memory=1
  echo $((by_memory < cores ? by_memory : cores))
}

configured=$(cmake --preset "$preset" 2>&1) || {
  printf '%s\n' "$configured"
  exit 1
}
say_less=()
[[ -t 1 ]] || say_less=(-- --quiet) # ninja's counter needs a terminal to stay on one line
# Tests are asked for their names right after linking; libtorch leaks by design at exit.
export ASAN_OPTIONS=detect_leaks=0
exec cmake --build --preset "$preset" --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$(compile_jobs)}" \
  ${1:+--target "$@"} "${say_less[@]}"
