# The devices of this host, as `boathook attach` takes them.
(( $+functions[_boathook_devices] )) ||
_boathook_devices() {
    local -a devices
    devices=(${(f)"$(boathook --log-level error list --all 2>/dev/null |
        awk 'NR > 1 { if (!NF) exit; print $1 "=" $2 }')"})
    compadd -a devices
}

# The containers that run, by the names that their engines gave them.
(( $+functions[_boathook_containers] )) ||
_boathook_containers() {
    local -a containers
    containers=(${(f)"$(boathook --log-level error containers 2>/dev/null)"})
    compadd -a containers
}

