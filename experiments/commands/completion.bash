# Bash completion of attnlab, from what the program says: its commands, their options, and the names that they take.
_attnlab() {
  local program=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} words
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="--help --version $("$program" --help | sed -n '/^$/,/^$/s/^  \([a-z]*\) .*/\1/p')"
  elif [[ $word = -* ]]; then
    words=$("$program" "$command" --help | sed -n 's/^ *\(-., \)\{0,1\}\(--[a-z-]*\).*/\2/p')
  else
    case $command in
      list) words='variants datasets checks' ;;
      describe) words=$("$program" list | sed -n 's/^\([A-Za-z0-9_-]*\)  *[^ ].*/\1/p') ;;
      apply | matrix | pattern | bench) words=$("$program" list variants | sed -n 's/^\([a-z0-9_]*\)  *.*/\1/p') ;;
      *) words='' ;;
    esac
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}
complete -o default -F _attnlab attnlab
