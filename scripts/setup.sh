#!/usr/bin/env bash
# Installs what Lapse needs on Debian 12 and makes .venv, which holds libtorch. Idempotent: a second run takes seconds.
#
#   LAPSE_TORCH=PYTHON|FOLDER   use the torch (>= 2.7) of this interpreter, or this torch package folder
#
# Without LAPSE_TORCH the active python3's torch is used where it has one, else torch 2.11 is installed into .venv.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv="$root/.venv"
torch_version=2.11.0

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }

# --- Debian's packages -------------------------------------------------------------------------------------------
packages=(
  g++ cmake ninja-build pkg-config ccache clang-format git file
  python3-dev python3-venv
  libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libfmt-dev zlib1g-dev
  libprotobuf-dev protobuf-compiler libgtest-dev libgmock-dev
)
missing=()
for p in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
done
if ((${#missing[@]})); then
  list="${missing[*]}"
  command -v apt-get >/dev/null || die "no apt-get here. Lapse is built on Debian 12; install by hand: $list"
  sudo=""
  if [[ $(id -u) != 0 ]]; then
    command -v sudo >/dev/null && sudo -n true 2>/dev/null && sudo="sudo -n" ||
      die "not root, and these packages are missing. As root: apt-get install $list"
  fi
  say "installing from Debian: $list"
  export DEBIAN_FRONTEND=noninteractive
  log=$(mktemp)
  { $sudo apt-get update && $sudo apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 </dev/null || {
    tail -n 5 "$log" >&2
    die "apt could not install: $list (is a package mirror reachable? the whole log: $log)"
  }
  rm -f "$log"
fi

# --- Python's side: libtorch and what the tests read files with -----------------------------------------------------
# Prints the site folder that holds a torch >= 2.7 (earlier wheels have the old C++ ABI), or fails. Does not import torch.
torch_site() {
  "$1" - <<'PY' 2>/dev/null
import importlib.metadata as m, importlib.util as u, pathlib, sys
v = tuple(int("".join(c for c in x if c.isdigit()) or 0) for x in m.version("torch").split("+")[0].split(".")[:2])
folder = pathlib.Path(next(iter(u.find_spec("torch").submodule_search_locations)))
if v < (2, 7) or not (folder / "lib" / "libtorch_cpu.so").exists():
    sys.exit(1)
print(folder.parent)
PY
}

python=python3
site=""
if [[ -n ${LAPSE_TORCH:-} ]]; then
  if [[ -d $LAPSE_TORCH && -e $LAPSE_TORCH/lib/libtorch_cpu.so ]]; then
    site=$(cd "$LAPSE_TORCH/.." && pwd)
  else
    command -v "$LAPSE_TORCH" >/dev/null || die "LAPSE_TORCH=$LAPSE_TORCH is neither a torch folder nor a Python interpreter"
    python=$LAPSE_TORCH
    site=$(torch_site "$python") || die "LAPSE_TORCH=$LAPSE_TORCH: this interpreter has no torch >= 2.7"
  fi
elif [[ ! -x $venv/bin/python ]]; then
  site=$(torch_site python3) || site=""
fi

if [[ ! -x $venv/bin/python ]] || ! "$venv/bin/python" -c '' 2>/dev/null || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
  say "making .venv"
  rm -rf "$venv"
  "$python" -m venv "$venv" || die "'$python -m venv' failed: Debian's package python3-venv is needed"
fi
py="$venv/bin/python"
if [[ -n $site ]]; then # a torch that is already there: make it visible, also from inside another virtual environment
  echo "$site" >"$("$py" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/lapse_torch.pth"
fi

pip_install() {
  local log
  log=$(mktemp)
  "$py" -m pip install -q --disable-pip-version-check --no-input "$@" >"$log" 2>&1 </dev/null || {
    tail -n 5 "$log" >&2
    die "pip could not install: $* (is a package index reachable? the whole log: $log)"
  }
  rm -f "$log"
}
if ! torch_site "$py" >/dev/null; then
  free=$(df -Pk "$root" | awk 'NR == 2 { print int($4 / 1048576) }')
  ((free >= 10)) || die "torch $torch_version needs 10 GB of free disk while it installs; $free GB are free in $root"
  say "installing torch $torch_version into .venv (1 to 5 minutes, 4.7 GB)"
  pip_install "torch==$torch_version"
fi
wanted="$root/scripts/requirements.txt"
if ! cmp -s "$wanted" "$venv/lapse-requirements.txt"; then
  say "installing Python packages for tests and figures"
  pip_install -r "$wanted"
  cp "$wanted" "$venv/lapse-requirements.txt"
fi
say "ready: $("$py" -c 'import importlib.metadata as m; print("torch", m.version("torch"))') from $(torch_site "$py")"
