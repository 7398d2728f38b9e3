#!/usr/bin/env bash
# The program as scripts/races.sh runs it: instrumented, with LLVM's OpenMP.
LD_PRELOAD=/usr/lib/llvm-14/lib/libomp.so.5 exec "$(dirname "${BASH_SOURCE[0]}")/../build/tsan/lapse" "$@"
