//! Devices that come and go on a host with systemd.

use anyhow::{Result, ensure};
use harness::vm::Vm;

use super::case::{Case, expect, wait_for};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "user-namespace",
        modules: &[],
        test: user_namespace,
    },
    Case {
        name: "durability",
        modules: &[],
        test: durability,
    },
    Case {
        name: "reboot",
        modules: &[],
        test: reboot,
    },
];

/// `full OPTIONS... -- COMMAND...` runs a container with this system's own programs.
const FULL: &str = r#"#!/bin/bash
mountpoint -q /run/full/root || {
    mkdir -p /run/full/{upper,work,root}
    mount -t overlay -o lowerdir=/,upperdir=/run/full/upper,workdir=/run/full/work full /run/full/root
}
options=()
while [ "$1" != -- ]; do options+=("$1"); shift; done
shift
[[ " ${options[*]} " = *" --network "* ]] || options+=(--network none)
exec podman run --rm "${options[@]}" --rootfs /run/full/root "$@"
"#;

/// Opens a device that was given, and one that was not (/dev/loop-control).
const OPEN: &str = "[ -c /dev/fuse ] && (exec 3<>/dev/fuse) 2>/dev/null && echo opened || echo lost; \
                    [ -e /dev/other ] || mknod /dev/other c 10 237; \
                    (exec 3<>/dev/other) 2>&1 | grep -o 'not permitted'";

/// Installs the release as README.md says, and prepares what the cases use.
pub(super) fn install(vm: &mut Vm) -> Result<()> {
    vm.run(&format!(
        "/root/boathook/bin/boathook-init install --restart >&2
        cat >/usr/local/bin/full <<'END'\n{FULL}END
        chmod 755 /usr/local/bin/full
        cd /root; mkdir -p busybox/{{bin,dev,etc,proc,root,run,sbin,sys,tmp,usr/bin,usr/sbin}}
        cp /bin/busybox busybox/bin; chroot busybox /bin/busybox --install
        tar -cf busybox.tar -C busybox .
        docker import busybox.tar busybox; podman import --quiet busybox.tar busybox"
    ))
    .map(drop)
}

/// A container with users of its own opens a device.
fn user_namespace(vm: &mut Vm) -> Result<String> {
    let seen = vm.run(&format!(
        "podman run --rm --userns auto --network none -e FUSE_VISIBLE_DEVICES=all busybox \
            sh -c 'cat /proc/self/uid_map; {}'",
        OPEN.split_once(';')
            .map_or("", |(open, _)| open)
            .replace('\'', "")
    ))?;
    ensure!(!seen.contains("4294967295"), "no user namespace: {seen}");
    expect(&seen, "opened")?;
    Ok("podman --userns auto".to_string())
}

/// Devices stay, and others stay refused, whatever systemd and the engine do.
fn durability(vm: &mut Vm) -> Result<String> {
    vm.run(
        "request=FUSE_VISIBLE_DEVICES=all
        docker run -d --name stays --network none --runtime boathook -e $request busybox sleep 9999
        podman run -d --name stays --network none --cap-add MKNOD -e $request busybox sleep 9999
        ctr run -d --runc-binary /opt/boathook/current/bin/boathook-runtime --runc-systemd-cgroup \
            --cgroup system.slice:ctr:stays --env $request --env PATH=/bin:/usr/bin --rootfs /root/busybox stays /bin/sleep 9999",
    )?;
    const UNITS: &str = "systemctl list-units --plain --no-legend --type scope \
        | grep -oE '^(docker-|libpod-[0-9a-f]|ctr-)[^ ]*' | grep -v conmon";
    let events = [
        ("start", "true".to_string()),
        ("daemon-reload", "systemctl daemon-reload".to_string()),
        ("daemon-reexec", "systemctl daemon-reexec".to_string()),
        (
            "set-property",
            // crun's units do not restrict devices, until they have a list.
            format!(
                "for unit in $({UNITS}); do
                    systemctl set-property --runtime $unit TasksMax=4096
                    [ $(systemctl show -P DevicePolicy $unit) = auto ] ||
                        systemctl set-property --runtime $unit 'DeviceAllow=/dev/zero rw'
                done"
            ),
        ),
        (
            "update",
            "docker update --cpu-shares 512 stays; podman update --cpu-shares 512 stays"
                .to_string(),
        ),
        ("engine restart", "systemctl restart containerd".to_string()),
        (
            "container restart",
            "docker restart -t 0 stays; podman restart -t 0 stays".to_string(),
        ),
    ];
    let scopes = vm.run(UNITS)?;
    ensure!(scopes.lines().count() == 3, "not three scopes: {scopes}");
    for (event, lines) in &events {
        vm.run(lines)?;
        for enter in [
            "docker exec",
            "podman exec",
            "ctr task exec --exec-id $RANDOM",
        ] {
            let seen = vm.run(&format!("{enter} stays sh -c \"{OPEN}\""))?;
            ensure!(
                seen == "opened\nnot permitted\n",
                "after {event}, {enter}: {seen}"
            );
        }
    }
    vm.run("docker rm -f stays; podman rm -ft 0 stays; ctr task kill -s 9 stays; sleep 1; ctr container rm stays")?;
    let names: Vec<_> = events.iter().skip(1).map(|(event, _)| *event).collect();
    Ok(format!(
        "docker, podman, ctr: kept after {}",
        names.join(", ")
    ))
}

/// A container that Docker starts again has its device.
fn reboot(vm: &mut Vm) -> Result<String> {
    vm.run(
        "systemctl enable docker
        docker run -d --name back --restart always --network none --runtime boathook \
            -e FUSE_VISIBLE_DEVICES=all busybox sleep 9999",
    )?;
    vm.reboot()?;
    let running = "docker ps --format '{{.Names}} {{.Status}}'";
    wait_for(vm, running, "back Up")?;
    let seen = vm.run(&format!(
        "docker exec back sh -c \"{OPEN}\"; docker rm -f back >&2"
    ))?;
    ensure!(seen == "opened\nnot permitted\n", "{seen}");
    Ok("Docker starts the container again, with its device".to_string())
}
