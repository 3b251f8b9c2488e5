//! Engines of users other than root: their containers get the devices that the user may
//! open.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use harness::binaries;
use harness::demo_host::DemoHost;
use harness::demo_host::in_container;
use harness::engine_root::Generation;
use harness::image::Image;
use harness::probe::{self, Kind, Report};
use harness::rootfs::Rootfs;
use serde_json::json;

use super::engine::printed;
use super::machine::{self, Machine};
use super::{bundles, podman};

const IMAGE: &str = "boathook-test-rootless";

/// The directory in which the user finds the programs: that of the tests may be root's alone.
const PROGRAMS: &str = "/usr/local/bin";

/// The files that the hook writes for the container's loader.
const LOADER: &str = "/etc/ld.so.conf.d/00-boathook.conf";

/// Makes a user of the machine, who may open its devices.
fn add_user(machine: &Machine) {
    let private = &machine.private;
    let append = |path: &str, line: &str| {
        let text = fs::read_to_string(private.file(path)).unwrap_or_default();
        machine.write(path, &format!("{text}{line}\n")).unwrap();
    };
    append("/etc/passwd", "user:x:1000:1000::/home/user:/bin/sh");
    append("/etc/group", "user:x:1000:");
    append("/etc/subuid", "user:200000:65536");
    append("/etc/subgid", "user:200000:65536");
    let containers = "/home/user/.config/containers";
    let storage = "[storage]\ndriver = \"vfs\"\n";
    for (name, text) in [
        ("containers.conf", podman::CONTAINERS_CONF),
        ("storage.conf", storage),
    ] {
        let file = format!("{containers}/{name}");
        machine.write(&file, text).unwrap();
    }
    fs::create_dir_all(private.file("/run/user/1000")).unwrap();
    let mut give = private.command("chown");
    printed(give.args(["-R", "user:user", "/home/user", "/run/user/1000"])).unwrap();
    for name in ["boathook", "boathook-hook", "boathook-runtime"] {
        let program = private.file(&format!("{PROGRAMS}/{name}"));
        binaries::copy(&binaries::program(name).unwrap(), &program).unwrap();
    }
    open_to_all(&machine.devices);
}

/// A driver that lets every user use its devices.
fn open_to_all(devices: &DemoHost) {
    let root = devices.root();
    for directory in [Path::new(&root), root.parent().unwrap()] {
        fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
    }
    for index in 0..DemoHost::NODES {
        fs::set_permissions(devices.node(index), Permissions::from_mode(0o666)).unwrap();
    }
}

/// podman as the user.
fn podman(machine: &Machine) -> Command {
    let mut command = as_user(machine);
    command.arg("podman");
    command
}

fn as_user(machine: &Machine) -> Command {
    let mut command = machine.private.command("setpriv");
    command
        .args(["--reuid=1000", "--regid=1000", "--clear-groups"])
        .args([
            "env",
            "--chdir=/",
            "HOME=/home/user",
            "XDG_RUNTIME_DIR=/run/user/1000",
        ])
        .arg("PATH=/usr/sbin:/usr/bin");
    command
}

/// What a container of the user has, and what its user is told otherwise. `run` is the
/// engine's command with all but the container's own options.
fn report(mut run: Command, devices: &str) -> Result<Report> {
    let questions = in_container::questions().path(LOADER);
    run.args(["--rm", "--network=none"])
        .arg(format!("--env=DUMMY_VISIBLE_DEVICES={devices}"))
        .arg(IMAGE)
        .args(questions.command()?);
    Report::parse(&printed(&mut run)?)
}

#[test]
fn containers_of_rootless_podman_have_the_devices_that_their_user_may_open() {
    if let Some(reason) = podman::missing(Generation::Forky) {
        return skip::report("rootless podman", &reason);
    }
    let (machine, _) = podman::machine(Generation::Forky).unwrap();
    // Before podman has a mount namespace of its own for the user.
    bundles::leave_hybrid(&machine).unwrap();
    add_user(&machine);
    let hooks = "/etc/containers/oci/hooks.d";
    let file = fs::read_dir(machine.private.file(hooks)).unwrap().next();
    let file = file.unwrap().unwrap().path();
    let text = fs::read_to_string(&file).unwrap();
    let hook = binaries::program("boathook-hook")
        .unwrap()
        .display()
        .to_string();
    let installed = format!("{PROGRAMS}/boathook-hook");
    fs::write(&file, text.replace(&hook, &installed)).unwrap();

    let image = Image::new(Rootfs::Glibc).unwrap();
    let mut import = podman(&machine);
    let layer = "/home/user/layer.tar";
    fs::copy(image.layer(), machine.private.file(layer)).unwrap();
    printed(import.args(["import", layer, IMAGE])).unwrap();
    fs::create_dir(machine.private.file("/run/no-hooks")).unwrap();
    let wrapper = format!("--runtime={PROGRAMS}/boathook-runtime");
    let by_hook = format!("--hooks-dir={hooks}");
    for global in [&[&*by_hook][..], &["--hooks-dir=/run/no-hooks", &wrapper]] {
        let run = || {
            let mut run = podman(&machine);
            run.args(global).arg("run");
            run
        };
        assert_devices_are_given(run);
    }

    make_place_for_records(&machine);
    their_user_attaches_devices(&machine);

    // crun shows nobody what the hook writes to stderr; the user's log has it.
    let mut run = podman(&machine);
    run.args(["--runtime=crun", &by_hook, "run", "--cgroups=disabled"]);
    let message = format!("{:#}", report(run, "npu-65").unwrap_err());
    assert!(message.contains("exit code: 5"), "{message}");
    let mut log = as_user(&machine);
    let log = printed(log.arg(format!("{PROGRAMS}/boathook")).arg("log")).unwrap();
    assert!(log.contains("npu-65"), "{log}");
}

/// The user's own directory, on the host whose devices these are.
fn make_place_for_records(machine: &Machine) {
    let of_user = machine.devices.root().join("run/user/1000");
    fs::create_dir_all(&of_user).unwrap();
    chown(&of_user, Some(1000), Some(1000)).unwrap();
}

/// In the user namespace of podman, with the records in the user's own directory.
fn their_user_attaches_devices(machine: &Machine) {
    let mut run = podman(machine);
    run.args(["run", "--detach", "--network=none", "--name=live", IMAGE]);
    printed(run.args([probe::PATH, probe::PAUSE])).unwrap();
    let devices = || {
        let mut exec = podman(machine);
        exec.args(["exec", "live"]);
        in_container::devices_by(|asked| printed(exec.args(asked))).unwrap()
    };
    let program = format!("{PROGRAMS}/boathook");
    // The host whose devices these are has another root than the engine.
    let state = "--root=/run/user/1000/runc";
    let boathook = |arguments: &[&str]| {
        let mut boathook = podman(machine);
        boathook.args(["unshare", &program]).args(arguments);
        printed(&mut boathook)
    };
    assert_attaches("live", devices, |arguments| {
        boathook(&[arguments, &[state]].concat())
    });

    // Neither the user without the namespace nor root may: the message says who does.
    for mut command in [as_user(machine), machine.private.command("env")] {
        command.args([&program, "attach", state, "live", "dummy-npu=npu-3"]);
        let message = format!("{:#}", printed(&mut command).unwrap_err());
        assert!(message.contains("podman unshare"), "{message}");
    }
    assert!(devices().is_empty());
    printed(podman(machine).args(["rm", "--force", "--time=0", "live"])).unwrap();
}

/// Devices are attached to a container without any, and detached from it.
fn assert_attaches(
    container: &str,
    devices: impl Fn() -> Vec<usize>,
    boathook: impl Fn(&[&str]) -> Result<String>,
) {
    assert!(devices().is_empty());
    for (command, expected) in [
        (
            &["attach", container, "dummy-npu=npu-3,npu-5"][..],
            &[3, 5][..],
        ),
        (&["detach", container, "dummy-npu=npu-3"], &[5]),
        (&["detach", container], &[]),
    ] {
        boathook(command).unwrap();
        assert_eq!(devices(), expected, "{command:?}");
    }
}

/// A container has the device that it requests; an unknown one is refused with the
/// hook's line.
fn assert_devices_are_given(run: impl Fn() -> Command) {
    let seen = report(run(), "npu-3").unwrap();
    assert_eq!(in_container::devices(&seen).unwrap(), [3], "{:?}", run());
    // The files that root's ldconfig reads belong to no other user of the container.
    let loader = seen.path(LOADER).unwrap();
    assert_eq!((loader.kind, loader.uid, loader.gid), (Kind::File, 0, 0));
    let message = format!("{:#}", report(run(), "npu-64").unwrap_err());
    assert!(message.contains("npu-64"), "{message}");
}

/// By the wrapper in a user namespace; Docker calls no hooks of its own.
#[test]
fn containers_of_rootless_docker_have_the_devices_that_their_user_may_open() {
    const DAEMON: &str = "/usr/share/docker.io/contrib/dockerd-rootless.sh";
    const SOCKET: &str = "unix:///run/user/1000/docker.sock";
    let programs = ["dockerd", "docker", "rootlesskit", "slirp4netns"];
    if let Some(reason) = machine::missing(Generation::Forky, &programs) {
        return skip::report("rootless docker", &reason);
    }
    let machine = Machine::new(Generation::Forky, "runc").unwrap();
    let settings = json!({
        "runtimes": {"boathook": {"path": format!("{PROGRAMS}/boathook-runtime")}},
        "storage-driver": "vfs",
        "bridge": "none",
        "iptables": false,
    });
    machine
        .write(
            "/home/user/.config/docker/daemon.json",
            &settings.to_string(),
        )
        .unwrap();
    add_user(&machine);
    let docker = || {
        let mut docker = as_user(&machine);
        docker.args(["docker", "--host", SOCKET]);
        docker
    };
    // As udev makes it, for slirp4netns.
    let tun = "mount -t tmpfs none /dev/net && mknod -m 666 /dev/net/tun c 10 200";
    printed(machine.private.command("sh").args(["-c", tun])).unwrap();
    let mut daemon = as_user(&machine);
    daemon.arg(DAEMON);
    let ready = || printed(docker().arg("version")).is_ok();
    let mut daemon = machine.start("rootless", &mut daemon, ready).unwrap();

    let layer = "/home/user/layer.tar";
    let image = Image::new(Rootfs::Glibc).unwrap();
    fs::copy(image.layer(), machine.private.file(layer)).unwrap();
    printed(docker().args(["import", layer, IMAGE])).unwrap();
    assert_devices_are_given(|| {
        let mut run = docker();
        run.args(["run", "--runtime=boathook"]);
        run
    });
    make_place_for_records(&machine);
    let mut run = docker();
    run.args(["run", "--detach", "--network=none", "--name=live", IMAGE]);
    let id = printed(run.args([probe::PATH, probe::PAUSE])).unwrap();
    let devices = || {
        let mut exec = docker();
        exec.args(["exec", "live"]);
        in_container::devices_by(|asked| printed(exec.args(asked))).unwrap()
    };
    // The namespaces that rootlesskit made for the daemon.
    let pid = "/run/user/1000/docker.pid";
    let pid = fs::read_to_string(machine.private.file(pid)).unwrap();
    let boathook = |arguments: &[&str]| {
        let mut boathook = as_user(&machine);
        boathook.args(["nsenter", "--user", "--preserve-credentials", "--mount"]);
        boathook.args(["--target", pid.trim()]);
        boathook.arg(format!("{PROGRAMS}/boathook")).args(arguments);
        printed(boathook.args(["--root", "/run/user/1000/docker/runtime-runc/moby"]))
    };
    assert_attaches(id.trim(), devices, boathook);
    // It ends with its machine.
    drop(machine);
    daemon.wait().unwrap();
}
