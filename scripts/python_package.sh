#!/usr/bin/env bash
# Builds the Python package as a wheel, installs it in a fresh virtual environment that sees .venv's torch, and runs its
# tests there: what `pip install .` gives its users, not the checkout. scripts/setup.sh comes first.
#
#   scripts/python_package.sh           builds, installs, tests
#   scripts/python_package.sh NAME...   then only the tests of tests/python/NAME_test.py
set -euo pipefail
case ${1:-} in -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;; esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."
unset PYTHONPATH LAPSE_OPS
folder=$PWD/build/python
mkdir -p "$folder"

# Says nothing unless the command fails.
quietly() { "$@" >"$folder/log" 2>&1 </dev/null || { local status=$?; cat "$folder/log"; return $status; }; }

rm -rf "$folder/dist" "$folder/env"
quietly .venv/bin/python -m pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation -w "$folder/dist" .
quietly .venv/bin/python -m venv --without-pip "$folder/env"
site() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
# torch is 4.7 GB: linked, not copied; a .pth among its packages (a torch from elsewhere) counts too
echo "import site; site.addsitedir('$(site .venv/bin/python)')" >"$(site "$folder/env/bin/python")/torch_of_checkout.pth"
quietly .venv/bin/python -m pip -q --disable-pip-version-check --python "$folder/env/bin/python" install --no-deps "$folder"/dist/lapse-*.whl

tests=(tests/python/*_test.py)
if (($# > 0)); then
  tests=("${@/#/tests/python/}")
  tests=("${tests[@]/%/_test.py}")
fi
export LAPSE_WHEEL
LAPSE_WHEEL=$(echo "$folder"/dist/lapse-*.whl)
export OMP_WAIT_POLICY=passive
# Two at a time; what a test says is shown once it failed.
run() {
  local name log
  name=$(basename "$2" .py)
  log=$1/$name.log
  if "$1/env/bin/python" -B "$2" >"$log" 2>&1 </dev/null; then
    printf -- '-- %s: ok\n' "$name"
  else
    cat "$log"
    printf -- '-- %s: FAILED\n' "$name"
    exit 255 # xargs begins no other
  fi
}
export -f run
printf '%s\n' "${tests[@]}" | xargs -P 2 -I{} bash -c 'run "$@"' run "$folder" {}
