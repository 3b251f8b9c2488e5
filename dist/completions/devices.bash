
# The devices of this host, as `boathook attach` takes them.
_boathook_devices() {
    boathook --log-level error list --all 2>/dev/null |
        awk 'NR > 1 { if (!NF) exit; print $1 "=" $2 }'
}

_boathook_and_devices() {
    local word="${COMP_LINE:0:COMP_POINT}" begun
    local container=' (attach|detach)( -[^ ]*)* [^ -]' value='^--(root|config|log-level)$'
    word="${word##*[[:space:]]}"
    if [[ " ${COMP_WORDS[*]:1:COMP_CWORD-1} " =~ $container && ! $3 =~ $value && $word != -* ]]; then
        COMPREPLY=($(compgen -W "$(_boathook_devices)" -- "$word"))
        # For bash a word ends at `=` and `:`, and only the last part is replaced.
        begun="${word%"$2"}"
        COMPREPLY=("${COMPREPLY[@]#"$begun"}")
        return
    fi
    _boathook "$@"
}
