//! SELinux, enforcing, with Debian's policy: it confines Docker, podman and their containers.

use anyhow::{Result, ensure};
use harness::vm::Vm;

use super::case::{Case, expect};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "selinux",
        modules: &[],
        test: containers,
    },
    Case {
        name: "selinux-prefix",
        modules: &[],
        test: programs_elsewhere,
    },
    // It is the last case, because Boathook is gone afterwards.
    Case {
        name: "selinux-uninstall",
        modules: &[],
        test: uninstall,
    },
];

/// Installed files, and the types that services and engines need them to have.
const TYPES: [(&str, &str); 7] = [
    ("/opt/boathook/current/bin/boathook-hook", "bin_t"),
    ("/opt/boathook/current/classes.d/tun.toml", "usr_t"),
    ("/etc/boathook/config.toml", "etc_t"),
    ("/etc/docker/daemon.json", "container_config_t"),
    (
        "/etc/containers/containers.conf.d/99-boathook.conf",
        "container_config_t",
    ),
    (
        "/etc/systemd/system/boathook-follow.service",
        "systemd_unit_t",
    ),
    ("/etc/udev/rules.d/71-boathook-cdi.rules", "udev_rules_t"),
];

const CLASS: &str = r#"
    version = 1
    resource = "example.com/board"
    request = { env = "BOARD_VISIBLE_DEVICES" }
    discover = [{ count = 1, nodes = ["/dev/fuse"] }]
    device = { id = "board" }
    [[edits]]
    libraries = ["libyajl.so.2"]"#;

/// The script of a container, which uses the device node and the library. It writes to its own file,
/// because the policy denies it the guest agent's pipes, which podman and runc pass on.
const USE: &str = "exec >/tmp/seen 2>&1
    cat /proc/self/attr/current; echo
    [ -c /dev/fuse ] && head -c 0 /dev/fuse && echo opened
    head -c 4 /usr/lib/boathook/lib/libyajl.so.2 | tail -c 3; echo
    touch /dev/other && echo all done
    sleep 9999";

/// Starts a container of runc with the labels that engines give.
const RUNC: &str = r#"rm -rf /root/bundle; mkdir -p /root/bundle; cd /root/bundle; cp -r /root/busybox rootfs
    runc spec
    sed -i -e 's/"terminal": true/"terminal": false/' -e 's/"readonly": true/"readonly": false/' \
        -e 's/"process": {/&"selinuxLabel": "system_u:system_r:container_t:s0:c1,c2",/' \
        -e 's/"linux": {/&"mountLabel": "system_u:object_r:container_file_t:s0:c1,c2",/' \
        -e 's/"PATH=/"BOARD_VISIBLE_DEVICES=all", &/' -e 's,"sh",& \, "/use",' config.json
    cp /root/use rootfs/use; chcon -R system_u:object_r:container_file_t:s0:c1,c2 rootfs
    boathook-runtime run --detach board </dev/null >/root/out 2>&1"#;

/// The directory of the programs in another installation. The policy gives programs there no type.
const PREFIX: &str = "/var/opt/boathook";

/// Containers that SELinux confines use a node and a library.
fn containers(vm: &mut Vm) -> Result<String> {
    let enforced = vm.run("getenforce; id -Z")?;
    expect(
        &enforced,
        "Enforcing\nunconfined_u:unconfined_r:unconfined_t:",
    )?;
    for (file, file_type) in TYPES {
        let label = vm.run(&format!("stat -c %C {file}"))?;
        ensure!(label.contains(&format!(":{file_type}:")), "{file}: {label}");
    }
    // Nothing has another label than the policy has for it.
    let other = vm.run(
        "restorecon -n -v -R -i /opt /etc/boathook /etc/containers /etc/docker /etc/systemd \
            /etc/udev /usr/local/bin /var/lib/boathook.toml",
    )?;
    ensure!(other.is_empty(), "other labels: {other}");

    // Debian's policy does not give podman's images their types when an administrator adds them.
    vm.run("restorecon -R /var/lib/containers")?;
    use_board_with_each_engine(vm)?;

    // Nodes of a running container have its label, too.
    let attached = vm.run(
        "docker run -d --name late --network none --runtime boathook busybox sleep 9999
        boathook attach late board=all
        docker exec late head -c 0 /dev/fuse && echo opened
        boathook detach late
        docker exec late ls /dev/fuse || echo gone; docker rm -f late",
    )?;
    expect(&attached, "opened")?;
    expect(&attached, "gone")?;
    expect_no_denials(vm)?;
    Ok(
        "Docker, podman and runc: containers of container_t open a node and read a library"
            .to_string(),
    )
}

/// The programs are in a directory of which the policy says nothing (`--prefix`).
fn programs_elsewhere(vm: &mut Vm) -> Result<String> {
    vm.run(&format!(
        "rm -f /etc/boathook/classes.d/board.toml; boathook-init uninstall >&2
        /root/boathook/bin/boathook-init install --prefix {PREFIX} --restart >&2"
    ))?;
    for program in ["boathook-hook", "boathook-runtime", "boathook"] {
        let label = vm.run(&format!("stat -c %C {PREFIX}/current/bin/{program}"))?;
        ensure!(label.contains(":bin_t:"), "{program}: {label}");
    }
    use_board_with_each_engine(vm)?;
    expect_no_denials(vm)?;
    Ok(format!("the same with the programs in {PREFIX}"))
}

/// A container of each engine opens the node and reads the library.
fn use_board_with_each_engine(vm: &mut Vm) -> Result<()> {
    vm.run(&format!(
        "mkdir -p /etc/boathook/classes.d; cat >/etc/boathook/classes.d/board.toml <<'END'\n{CLASS}\nEND
        cat >/root/use <<'END'\n{USE}\nEND"
    ))?;
    let result = run_containers(vm);
    if result.is_err() {
        expect_no_denials(vm)?;
    }
    result
}

fn run_containers(vm: &mut Vm) -> Result<()> {
    let request = "-e BOARD_VISIBLE_DEVICES=all";
    let started = [
        (
            "docker",
            format!(
                "docker run -d --name board --network none --runtime boathook {request} busybox sh -c \"$(cat /root/use)\""
            ),
            "docker inspect -f '{{.State.Pid}}' board",
            "docker rm -f board",
        ),
        (
            "podman",
            format!(
                "podman run -d --name board --network none {request} busybox sh -c \"$(cat /root/use)\" >/root/out 2>&1"
            ),
            "podman inspect -f '{{.State.Pid}}' board",
            "podman rm -ft 0 board",
        ),
        (
            "runc",
            RUNC.to_string(),
            "runc state board | sed -n 's/.*\"pid\": \\([0-9]*\\).*/\\1/p'",
            "runc delete --force board",
        ),
    ];
    for (engine, start, pid, remove) in started {
        vm.run(&start)?;
        let seen = vm.run(&format!(
            "file=/proc/$({pid})/root/tmp/seen
            for second in $(seq 60); do grep -q -e done -e denied $file && break; sleep 1; done
            cat $file"
        ))?;
        ensure!(
            seen.starts_with("system_u:system_r:container_t:s0:c")
                && seen.ends_with("\nopened\nELF\nall done\n"),
            "{engine}: {seen}"
        );
        vm.run(remove)?;
    }
    Ok(())
}

/// Nothing that Boathook wrote stays.
fn uninstall(vm: &mut Vm) -> Result<String> {
    vm.run("rm -f /etc/boathook/classes.d/board.toml; boathook-init uninstall >&2")?;
    let left = vm.run(
        "find / -xdev -iname '*boathook*' -not -path '/root/*' -not -path '/proc/*'; find /run -iname '*boathook*'
        grep -rl boathook /etc || true",
    )?;
    ensure!(left.is_empty(), "left: {left}");
    expect_no_denials(vm)?;
    Ok("nothing is left".to_string())
}

/// Fails if SELinux has denied anything to a program of Boathook, or a file of it to anything.
fn expect_no_denials(vm: &mut Vm) -> Result<()> {
    let denied = vm.run(
        "ausearch --message avc,user_avc,selinux_err --start boot 2>/dev/null \
            | grep -i boathook || true",
    )?;
    ensure!(denied.is_empty(), "denied: {denied}");
    Ok(())
}
