#compdef lapse
# Completion of lapse for zsh, as `lapse completion zsh` writes it: a file _lapse in a folder of $fpath, or, below
# compinit, source <(lapse completion zsh)

# SECTION.KEY=VALUE
_lapse_assignment() {
  local -a keys=(@KEYS@)
  local -A values=(@ASSIGNMENTS@)
  if compset -P '*='; then
    local key=${${IPREFIX%=}##*=}
    compadd -- ${=values[$key]}
  else
    compadd -S '' -- ${^keys}=
  fi
}

@FUNCTIONS@
if [[ ${funcstack[1]} == _lapse ]]; then
  _lapse "$@"
else
  compdef _lapse lapse
fi
