
# The devices of this host, as `boathook attach` takes them.
_boathook_devices() {
    boathook --log-level error list --all 2>/dev/null |
        awk 'NR > 1 { if (!NF) exit; print $1 "=" $2 }'
}

# The containers that run, by the names that their engines gave them.
_boathook_containers() {
    boathook --log-level error containers 2>/dev/null
}

_boathook_and_devices() {
    local word="${COMP_LINE:0:COMP_POINT}" begun
    local container=' (attach|detach)( -[^ ]*)* [^ -]' value='^--(root|config|log-level)$'
    local named=' (attach|detach|refresh|doctor)( -[^ ]*)* $'
    local other='^--(pid|pod|bundle|env|device)$'
    local before=" ${COMP_WORDS[*]:1:COMP_CWORD-1} "
    word="${word##*[[:space:]]}"
    if [[ $before =~ $container && ! $3 =~ $value && $word != -* ]]; then
        COMPREPLY=($(compgen -W "$(_boathook_devices)" -- "$word"))
        # For bash a word ends at `=` and `:`, and only the last part is replaced.
        begun="${word%"$2"}"
        COMPREPLY=("${COMPREPLY[@]#"$begun"}")
        return
    fi
    if [[ $3 == --container || $before =~ $named && ! $3 =~ $value && ! $3 =~ $other && $word != -* ]]; then
        COMPREPLY=($(compgen -W "$(_boathook_containers)" -- "$word"))
        return
    fi
    _boathook "$@"
}
