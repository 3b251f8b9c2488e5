//! Containers that start with the machine, when their device is not plugged in.

use anyhow::Result;
use harness::vm::Vm;

use super::case::{Case, expect, wait_for};
use super::stick::{ANY_PORT, Stick, wait_until_gone, wait_until_usable};

pub(super) const CASES: &[Case] = &[Case {
    name: "late-boot",
    modules: &[],
    test: late_boot,
}];

const STICK: Stick = Stick { serial: "F050" };

/// The containers that the machine starts: the engine, the name, and what starts it.
const CONTAINERS: [(&str, &str, Start); 5] = [
    ("docker", "docker-always", Start::Policy("always")),
    ("docker", "docker-unless", Start::Policy("unless-stopped")),
    // podman-restart.service starts it.
    ("podman", "podman-always", Start::Policy("always")),
    ("docker", "docker-unit", Start::Unit),
    ("podman", "podman-unit", Start::Unit),
];

enum Start {
    /// The engine, by the container's restart policy.
    Policy(&'static str),
    /// A unit of systemd.
    Unit,
}

/// A port that containers request by its serial number is pulled out, and the machine boots
/// without it. It is plugged in later, and then moved.
fn late_boot(vm: &mut Vm) -> Result<String> {
    vm.run(
        "systemctl enable docker podman-restart boathook-follow; systemctl start boathook-follow",
    )?;
    for (engine, name, start) in &CONTAINERS {
        set_up(vm, engine, name, start)?;
    }
    STICK.plug_in(vm, "3")?;
    for (engine, name, _) in &CONTAINERS {
        wait_until_usable(vm, engine, name, ANY_PORT)?;
    }
    STICK.pull_out(vm)?;
    vm.reboot()?;
    for (engine, name, _) in &CONTAINERS {
        wait_until_gone(vm, engine, name)?;
    }
    let waits = vm.run("boathook doctor docker-unit 2>&1 || true")?;
    expect(&waits, STICK.serial)?;
    for usb_port in ["4", "3"] {
        STICK.plug_in(vm, usb_port)?;
        for (engine, name, _) in &CONTAINERS {
            wait_until_usable(vm, engine, name, ANY_PORT)?;
        }
        STICK.pull_out(vm)?;
        for (engine, name, _) in &CONTAINERS {
            wait_until_gone(vm, engine, name)?;
        }
    }
    for (engine, name, start) in &CONTAINERS {
        clear(vm, engine, name, start)?;
    }
    vm.run("systemctl disable --now docker podman-restart boathook-follow")?;
    Ok(
        "absent at a reboot, plugged in later and moved: containers that Docker, podman and \
        systemd's units start have it"
            .to_owned(),
    )
}

/// Creates a container, or the unit that creates it at each start.
/// The unit removes a container with its name first, because the machine may be down before an
/// engine has removed one that it has killed.
fn set_up(vm: &mut Vm, engine: &str, name: &str, start: &Start) -> Result<()> {
    let runtime = match engine {
        "docker" => "--runtime boathook",
        _ => "",
    };
    let run = format!(
        "{engine} run --name {name} --network none {runtime} -e SERIAL_VISIBLE_DEVICES={}?",
        STICK.serial
    );
    let program = "busybox sleep 9999";
    vm.run(&match start {
        Start::Policy(policy) => format!("{run} -d --restart {policy} {program}"),
        Start::Unit => format!(
            "cat >/etc/systemd/system/{name}.service <<'END'\n\
             [Unit]\nWants={engine}.service\nAfter={engine}.service\n\
             [Service]\nExecStartPre=-{engine} rm -f {name}\nExecStart={run} --rm {program}\nExecStop={engine} kill {name}\nRestart=always\n\
             [Install]\nWantedBy=multi-user.target\nEND\n\
             systemctl enable --now {name}"
        ),
    })?;
    let names = format!("{engine} ps --format '{{{{.Names}}}}'");
    wait_for(vm, &names, name).map(drop)
}

fn clear(vm: &mut Vm, engine: &str, name: &str, start: &Start) -> Result<()> {
    vm.run(&match start {
        Start::Policy(_) => format!("{engine} rm -f {name}"),
        Start::Unit => format!(
            "systemctl disable --now {name}; rm /etc/systemd/system/{name}.service; systemctl daemon-reload"
        ),
    })
    .map(drop)
}
