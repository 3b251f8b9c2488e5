# The devices of this host, as `boathook attach` takes them.
(( $+functions[_boathook_devices] )) ||
_boathook_devices() {
    local -a devices
    devices=(${(f)"$(boathook --log-level error list --all 2>/dev/null |
        awk 'NR > 1 { if (!NF) exit; print $1 "=" $2 }')"})
    compadd -a devices
}

