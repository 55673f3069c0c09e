# Bash completion of attnlab, from what the program says: its commands, their options, the names that they take, and the
# parameters of variants, with the values that these may have.
_attnlab() {
  local program=${COMP_WORDS[0]} line word command words before section
  # Bash breaks words at : and =, which are in the middle of a variant with its parameters.
  line=${COMP_LINE:0:COMP_POINT}
  word=${line##*[[:space:]]}
  read -r _ command _ <<<"$line"
  if [[ $line != *[[:space:]]*[[:space:]]* ]]; then
    words="--help --version $("$program" --help | sed -n '/^$/,/^$/s/^  \([a-z]*\) .*/\1/p')"
  elif [[ $word = -* ]]; then
    words=$("$program" "$command" --help | sed -n 's/^ *\(-., \)\{0,1\}\(--[a-z-]*\).*/\2/p')
  else
    case $command in
      list) words='variants datasets checks' ;;
      help) words="config $("$program" --help | sed -n '/^$/,/^$/s/^  \([a-z]*\) .*/\1/p')" ;;
      describe | apply | matrix | pattern | bench | test | advise) _attnlab_specs ;;
      *) words='' ;;
    esac
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
  # What stands before the last : or = is on the line already.
  before=${word%"${word##*[:=]}"}
  if [[ $word = *[:=]* && $COMP_WORDBREAKS = *:* ]]; then COMPREPLY=("${COMPREPLY[@]#"$before"}"); fi
  case ${COMPREPLY[0]-} in *[=:,]) compopt -o nospace 2>/dev/null ;; esac
}

# The names; of one with a colon its parameters; of a parameter that is a choice the choices.
_attnlab_specs() {
  local given=${word%"${word##*[,:]}"} last=${word##*[,:]} sheet
  if [[ $word != *:* ]]; then
    [ "$command" = describe ] || section=variants
    words=$("$program" list ${section-} | sed -n 's/^\([A-Za-z0-9_-]*\)  *[^ ].*/\1/p')
    return
  fi
  sheet=$("$program" describe "${word%%:*}" 2>/dev/null)
  if [[ $last = *=* ]]; then
    words=$(awk -v begins="  ${last%%=*}=" 'index($0, begins) == 1 { getline; if (/\|/) { gsub(/[()|]/, " "); print } }' <<<"$sheet")
    given+=${last%%=*}=
  else
    words=$(awk '/^parameters/ { inside = 1 } /^$/ { inside = 0 } inside && /^  [a-z]/ { sub(/=.*/, "="); print $1 }' <<<"$sheet")
  fi
  words=$(printf "$given%s " $words)
}
complete -o default -F _attnlab attnlab
