# Completion of lapse for bash, as `lapse completion bash` writes it. To load it: source <(lapse completion bash)

# The verbs that may follow these verbs.
_lapse_verbs() {
  case $1 in
@VERBS@
    *) REPLY= ;;
  esac
}

# The flags of a verb.
_lapse_flags() {
  case $1 in
@FLAGS@
    *) REPLY= ;;
  esac
}

# What the value of a verb's flag may be, or of its arguments 1, 2 ... or any (n): names, or <files>, <toml>, <assignment>, <any>. Empty for a
# flag without a value. A flag that takes several has "..." before it.
_lapse_values() {
  case $1 in
@VALUES@
    *) REPLY= ;;
  esac
}

_lapse_keys='@KEYS@'
_lapse_assignments='@ASSIGNMENTS@'

_lapse() {
  local words=() word value i REPLY path='' option='' many='' joined='' kind='' given=1
  # bash takes words apart at '='
  for ((i = 1; i <= COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if ((${#words[@]} > 0)) && [[ $word == '='* || ${COMP_WORDS[i - 1]} == '=' ]]; then
      words[-1]+=$word
    else
      words+=("$word")
    fi
  done
  # Where we are: the verbs so far, and the flag whose value comes next.
  for word in "${words[@]:0:${#words[@]}-1}"; do
    if [[ -n $option ]]; then
      option=
    elif [[ $word == -* ]]; then
      _lapse_values "$path $word"
      [[ -z $REPLY || $REPLY == '[]'* ]] || option=$word
      [[ $REPLY != '[]'* ]] || kind=${REPLY#'[]'}
      [[ $REPLY == '...'* ]] && many=$word || many=
    else
      _lapse_verbs "$path"
      if [[ " $REPLY " == *" $word "* ]]; then path=${path:+$path }$word; else ((given++)); fi
    fi
  done
  value=${words[-1]}
  if [[ $value == --*=* ]]; then
    option=${value%%=*} joined=$option=
    value=${value#*=}
  fi
  # What may stand here.
  if [[ -n $option ]]; then
    _lapse_values "$path $option"
  elif [[ $value == -* ]]; then
    _lapse_flags "$path"
  elif [[ -n $kind ]]; then
    REPLY=$kind
  else
    _lapse_verbs "$path"
    [[ -n $REPLY ]] || _lapse_values "$path ${many:-<argument $given>}"
    [[ -n $REPLY ]] || _lapse_values "$path <argument n>"
  fi
  REPLY=${REPLY#'...'}
  REPLY=${REPLY#'[]'}
  COMPREPLY=()
  case $REPLY in
    '<any>') ;;
    '<files>')
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -f -- "$value")
      ;;
    '<toml>')
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -f -X '!*.toml' -- "$value"; compgen -d -- "$value")
      ;;
    '<assignment>')
      [[ $value == *=* ]] && REPLY=$_lapse_assignments || REPLY=$_lapse_keys
      [[ $value == *=* ]] || compopt -o nospace 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -W "$REPLY" -- "$value")
      ;;
    *) mapfile -t COMPREPLY < <(compgen -W "$REPLY" -- "$value") ;;
  esac
  # bash replaces what stands after the last '=', if it takes words apart there, else the whole word.
  if [[ $COMP_WORDBREAKS == *=* ]]; then
    [[ $value != *=* ]] || COMPREPLY=("${COMPREPLY[@]#"${value%=*}="}")
  else
    COMPREPLY=("${COMPREPLY[@]/#/$joined}")
  fi
}

complete -F _lapse lapse
