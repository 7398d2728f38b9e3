#!/usr/bin/env bash
# Builds Lapse and installs it for other shells and projects: the command, the libraries and headers.
#
#   scripts/install.sh              into ~/.local, which needs no root
#   scripts/install.sh PREFIX       into PREFIX/bin, PREFIX/lib, PREFIX/include, PREFIX/share
#
# The installed command uses the libtorch that it was built with (by default the one in this folder's .venv): keep it.
# CMake finds the library by find_package(Lapse) with -DCMAKE_PREFIX_PATH=PREFIX.
set -euo pipefail

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; }
die() { printf 'install: error: %s\n' "$*" >&2; exit 1; }

(($# <= 1)) || { usage >&2; exit 2; }
prefix=$HOME/.local
case ${1:-} in
  "") ;;
  -h | --help) usage; exit 0 ;;
  -*) printf 'install: unknown option: %s\n' "$1" >&2; usage >&2; exit 2 ;;
  *) prefix=$(realpath -m "$1") ;;
esac
mkdir -p "$prefix" 2>/dev/null && [[ -w $prefix ]] || die "cannot write to $prefix; give a folder of yours: scripts/install.sh PREFIX"

cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh
scripts/build.sh release lapse_program
cmake --install build/release --prefix "$prefix" >/dev/null
"$prefix/bin/lapse" --version
printf 'install: %s\n' "$prefix/bin/lapse"
case :$PATH: in
  *":$prefix/bin:"*) ;;
  *) printf 'install: to use it as "lapse": export PATH="%s/bin:$PATH"\n' "$prefix" ;;
esac
