
# The devices of this host, as `boathook attach` takes them.
function __boathook_devices
    boathook --log-level error list --all 2>/dev/null |
        awk 'NR > 1 { if (!NF) exit; print $1 "=" $2 }'
end

function __boathook_names_a_container
    __fish_boathook_using_subcommand attach detach
    and test (count (commandline -opc)) -gt 2
end

complete -c boathook -n "__boathook_names_a_container" -f -a "(__boathook_devices)"
