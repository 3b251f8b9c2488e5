
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

# The containers that run, by the names that their engines gave them.
function __boathook_containers
    boathook --log-level error containers 2>/dev/null
end

function __boathook_before_a_container
    __fish_boathook_using_subcommand attach detach refresh doctor
    and test (count (commandline -opc)) -eq 2
end

complete -c boathook -n "__boathook_before_a_container" -f -a "(__boathook_containers)"
complete -c boathook -n "__fish_boathook_using_subcommand explain doctor log" -l container -x -a "(__boathook_containers)"
