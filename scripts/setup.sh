#!/usr/bin/env bash
# Installs what Lapse needs on Debian 12 and makes .venv, which holds libtorch. Idempotent: a second run takes seconds.
#
#   LAPSE_TORCH=PYTHON|FOLDER   use the torch (>= 2.7) of this interpreter, or this torch package folder
#   LAPSE_NO_APT=1              look for no Debian packages: the tools and libraries listed below are there already
#   LAPSE_BROWSER=1             also a headless browser (100 MB), for the tests that open the pages of `lapse inspect` and `lapse serve`
#
# Without LAPSE_TORCH an existing .venv is kept; a new one uses the torch of the active python3 where it has one, else
# gets torch 2.11 of its own. To choose anew: rm -rf .venv
set -euo pipefail
case ${1:-} in
  "") ;;
  -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
  *) printf 'setup: unknown argument: %s; see --help\n' "$1" >&2; exit 2 ;;
esac
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv="$root/.venv"
torch_version=2.11.0

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }

# A program that was interrupted by Ctrl-C may end as if it had failed; the mark in pip_install must then stay.
trap 'exit 130' INT
trap 'exit 143' TERM

# Two runs at a time would mend each other's half-made .venv. (The file is only a thing to hold a lock on.)
exec 9<"${BASH_SOURCE[0]}"
flock -n 9 || { say "waiting for another set-up of this folder"; flock 9; }

# --- Debian's packages -------------------------------------------------------------------------------------------
packages=(
  g++ cmake ninja-build pkg-config ccache clang-format git file
  clang libclang-rt-14-dev libomp-14-dev
  python3-dev python3-venv
  libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libfmt-dev zlib1g-dev
  libprotobuf-dev protobuf-compiler libsentencepiece-dev libgtest-dev libgmock-dev libhwy-dev
  libcpp-httplib-dev libgloo-dev iproute2 procps zsh
)

missing_packages() {
  local installed p
  # dpkg-query fails where one of them is unknown, and still prints the others
  installed=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "${packages[@]}" 2>/dev/null || true)
  for p in "${packages[@]}"; do
    grep -qxF "$p installed" <<<"$installed" || printf '%s\n' "$p"
  done
}

install_packages() {
  local list="$*" log as_root=()
  command -v apt-get >/dev/null ||
    die "no apt-get here. Lapse is built on Debian 12; with these installed by hand, run again with LAPSE_NO_APT=1: $list"
  if [[ $(id -u) != 0 ]]; then
    { command -v sudo >/dev/null && sudo -n true 2>/dev/null; } ||
      die "not root, and these packages are missing. As root: apt-get install $list"
    as_root=(sudo -n)
  fi
  say "installing from Debian: $list"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive
    apt-get -o DPkg::Lock::Timeout=120 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 -o Acquire::Retries=1)
  log=$(mktemp)
  # a failing update is not fatal: some other source may be broken, and the lists may be recent enough
  { "${apt[@]}" update || true; "${apt[@]}" install -y --no-install-recommends "$@"; } >"$log" 2>&1 </dev/null 9<&- || {
    tail -n 5 "$log" >&2
    die "apt could not install: $list (is a package mirror reachable? the whole log: $log)"
  }
  rm -f "$log"
}

if [[ -z ${LAPSE_NO_APT:-} ]]; then
  mapfile -t missing < <(missing_packages)
  ((${#missing[@]} == 0)) || install_packages "${missing[@]}"
  if [[ -n ${LAPSE_BROWSER:-} ]] && ! command -v chromium-headless-shell chromium chromium-browser google-chrome >/dev/null; then
    (install_packages chromium-headless-shell) || say "note: without a browser the test that opens a page is skipped"
  fi
fi

# --- Python's side: libtorch and what the tests read files with ----------------------------------------------------
# Prints the folder of the torch that this interpreter would import. Does not import it: that takes seconds.
torch_folder() {
  "$1" -c 'import importlib.util as u; print(next(iter(u.find_spec("torch").submodule_search_locations)))' 2>/dev/null
}

torch_release() { sed -n "s/^__version__ = '\(.*\)'.*/\1/p" "$1/version.py" 2>/dev/null; }

# Is this a torch folder, and >= 2.7 (earlier wheels have the old C++ ABI)?
usable_torch() {
  local major minor
  [[ -e $1/lib/libtorch_cpu.so ]] || return 1
  IFS=. read -r major minor _ <<<"$(torch_release "$1")"
  [[ $major =~ ^[0-9]+$ && $minor =~ ^[0-9]+$ ]] && ((major > 2 || (major == 2 && minor >= 7)))
}

usable_torch_of() {
  local folder
  folder=$(torch_folder "$1") && usable_torch "$folder" && printf '%s\n' "$folder"
}

# Prints an interpreter that torch 2.11 has wheels for; the active python3 may be too old, Debian's is not.
find_python() {
  local p
  for p in python3 /usr/bin/python3; do
    if "$p" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null; then
      printf '%s\n' "$p"
      return
    fi
  done
  die "no python3 of version 3.10 to 3.14 found (Debian: apt-get install python3 python3-venv)"
}

python_version() { "$1" -c 'import sys; print(*sys.version_info[:2], sep=".")' 2>/dev/null; }

mark="$venv/lapse-installing" # there while pip works: what an interrupted pip leaves behind looks installed to the next

venv_works() {
  [[ ! -e $mark ]] && "$venv/bin/python" -c '' 2>/dev/null && "$venv/bin/python" -m pip --version >/dev/null 2>&1
}

python="" # what makes .venv
found=""  # a torch folder that is there already
if [[ -n ${LAPSE_TORCH:-} ]]; then
  if [[ -d $LAPSE_TORCH ]]; then
    found=$(cd "$LAPSE_TORCH" && pwd)
    usable_torch "$found" ||
      die "LAPSE_TORCH=$LAPSE_TORCH is a folder without torch >= 2.7 (version.py and lib/libtorch_cpu.so are looked for)"
  else
    command -v "$LAPSE_TORCH" >/dev/null || die "LAPSE_TORCH=$LAPSE_TORCH is neither a torch folder nor a Python interpreter"
    python=$LAPSE_TORCH
    found=$(usable_torch_of "$python") || die "LAPSE_TORCH=$LAPSE_TORCH: found no torch >= 2.7 with this interpreter"
  fi
elif ! venv_works && found=$(usable_torch_of python3); then
  python=python3
fi
[[ -n $python ]] || python=$(find_python)

if ! venv_works || { [[ -n ${LAPSE_TORCH:-} && $(python_version "$venv/bin/python") != $(python_version "$python") ]]; }; then
  say "making .venv"
  rm -rf "$venv"
  log=$(mktemp)
  "$python" -m venv "$venv" >"$log" 2>&1 || {
    tail -n 5 "$log" >&2
    die "'$python -m venv' failed (is Debian's package python3-venv there? the whole log: $log)"
  }
  rm -f "$log"
fi
py="$venv/bin/python"

# Makes a torch that is there already visible in .venv, also one from inside another virtual environment.
link_torch() {
  local site packages link line
  site=$(dirname "$1")
  packages=$("$py" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  link="$packages/lapse_torch.pth"
  line=$site # behind .venv's own packages, which the tests were written with ...
  [[ -e $packages/torch ]] && line="import sys; sys.path.insert(0, r'$site')" # ... unless a torch is among them
  if [[ $(cat "$link" 2>/dev/null) != "$line" ]]; then
    printf '%s\n' "$line" >"$link"
    "$py" -c 'import torch' 2>/dev/null ||
      say "note: Python $(python_version "$py") cannot import the torch in $site; the library works, tests in Python will not"
  fi
}
[[ -z $found ]] || link_torch "$found"

# Are there files of torch in .venv, but not the one that pip writes last?
half_a_torch() {
  compgen -G "$venv/lib/python*/site-packages/torch" >/dev/null &&
    ! compgen -G "$venv/lib/python*/site-packages/torch-*.dist-info/RECORD" >/dev/null
}

pip_install() {
  local log
  log=$(mktemp)
  touch "$mark"
  # pip's own limits (15 s, 5 retries) take minutes where a registry is out of reach; the user's settings take precedence
  PIP_USER=0 PIP_DEFAULT_TIMEOUT=${PIP_DEFAULT_TIMEOUT:-20} PIP_RETRIES=${PIP_RETRIES:-2} \
    "$py" -m pip install -q --disable-pip-version-check --no-input "$@" >"$log" 2>&1 </dev/null || {
    # It fetches everything before it installs anything: nothing is half there, unless it stopped while it unpacked torch.
    half_a_torch || rm -f "$mark"
    tail -n 5 "$log" >&2
    die "pip could not install: $* (is a package index reachable? the whole log: $log)"
  }
  rm -f "$log" "$mark"
}

if ! usable_torch_of "$py" >/dev/null; then
  free=$(df -Pk "$root" | awk 'NR == 2 { print int($4 / 1048576) }')
  ((free >= 10)) || die "torch $torch_version needs 10 GB of free disk while it installs; $free GB are free in $root"
  say "installing torch $torch_version into .venv (1 to 5 minutes, 4.7 GB)"
  pip_install "torch==$torch_version"
  usable_torch_of "$py" >/dev/null || die "pip installed torch $torch_version, but no usable libtorch is in .venv"
fi
wanted="$root/scripts/requirements.txt"
if ! cmp -s "$wanted" "$venv/lapse-requirements.txt"; then
  say "installing Python packages for tests and figures"
  pip_install -r "$wanted"
  cp "$wanted" "$venv/lapse-requirements.txt"
fi
folder=$(torch_folder "$py")
say "ready: torch $(torch_release "$folder") in $folder"
