# What the experiments' scripts share: --help, the folder of the texts, and checks before any work starts.
#
#   source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
#   start "$@"                   # --help prints the script's opening comment; other arguments are refused
#   need_texts enwik8-head.txt   # in one line what is missing, and how to get it
#
# Afterwards the working directory is the repository's root, and LAPSE_DATA the absolute path of the texts' folder.

experiments=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
script=${0#"$(dirname "$experiments")/"}

die() { printf '%s: error: %s\n' "$script" "$*" >&2; exit 1; }

# The opening comment of the script that is running.
usage() { sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0"; }

# Prints the help and ends where it is asked for; else goes to the root.
help_or_begin() {
  local argument
  for argument in "$@"; do
    case $argument in -h | --help) usage; exit 0 ;; esac
  done
  local root
  root=$(dirname "$experiments")
  # ../shared/data is where the project's own machines keep the texts.
  [[ -n ${LAPSE_DATA:-} ]] || { LAPSE_DATA=$root/../shared/data && [[ -d $LAPSE_DATA ]]; } || LAPSE_DATA=$root/data
  LAPSE_DATA=$(realpath -m "$LAPSE_DATA")
  export LAPSE_DATA
  cd "$root"
}

start() {
  help_or_begin "$@"
  (($# == 0)) || { printf '%s: error: unknown argument: %s; see --help\n' "$script" "$1" >&2; exit 2; }
}

# The same for a script that passes --only TEXT and --list on to a run.py.
start_runs() {
  help_or_begin "$@"
  while (($# > 0)); do
    case $1 in
      --only) (($# > 1)) || die "--only wants a part of a name; see --help"; shift 2 ;;
      --list) shift ;;
      *) start "$@" ;;
    esac
  done
}

need_program() {
  [[ -x build/release/lapse && -x .venv/bin/python ]] || die "Lapse is not built; scripts/setup.sh && scripts/build.sh release"
}

need_texts() { # FILE...: below LAPSE_DATA
  local text
  for text in "$@"; do
    [[ -s $LAPSE_DATA/$text ]] ||
      die "$text is missing in $LAPSE_DATA; LAPSE_DATA=DIR names another folder, scripts/data.sh --list says how to get it"
  done
  need_program
}

# 2,048 SentencePiece pieces of Wikipedia's training part, made once; LAPSE_PIECES names the file afterwards.
make_pieces() { # FOLDER [--list and the like]
  export LAPSE_PIECES=$PWD/$1/wikipedia-2k.model
  [[ ! -e $LAPSE_PIECES && " ${*:2} " != *" --list "* ]] || return 0  # a list of runs needs none
  mkdir -p "$1"
  build/release/lapse tokenizer train --data "$LAPSE_DATA/wikipedia.txt.gz" --documents "<doc </doc>" --fraction 0.98 --vocabulary 2048 --out "$LAPSE_PIECES"
}
