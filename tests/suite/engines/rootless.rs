//! Engines of users other than root: what they may open, a container of theirs gets.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use harness::binaries;
use harness::demo_host::DemoHost;
use harness::engine_root::Generation;
use harness::image::Image;
use harness::probe::{Access, Kind, Questions, Report};
use harness::rootfs::Rootfs;

use super::engine::printed;
use super::machine::Machine;
use super::podman;

const IMAGE: &str = "boathook-test-rootless";

/// Where the user finds the programs: the directory of the tests may be root's alone.
const PROGRAMS: &str = "/usr/local/bin";

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
    let conf = "[containers]\ndefault_ulimits = []\n\
                [engine]\nruntime = \"runc\"\ncgroup_manager = \"cgroupfs\"\n\
                events_logger = \"none\"\n";
    machine
        .write(&format!("{containers}/containers.conf"), conf)
        .unwrap();
    let storage = "[storage]\ndriver = \"vfs\"\n";
    machine
        .write(&format!("{containers}/storage.conf"), storage)
        .unwrap();
    fs::create_dir_all(private.file("/run/user/1000")).unwrap();
    let mut give = private.command("chown");
    printed(give.args(["-R", "user:user", "/home/user", "/run/user/1000"])).unwrap();
    for name in ["boathook", "boathook-runtime"] {
        let program = private.file(&format!("{PROGRAMS}/{name}"));
        fs::copy(binaries::program(name).unwrap(), program).unwrap();
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
    let mut command = machine.private.command("setpriv");
    command
        .args(["--reuid=1000", "--regid=1000", "--clear-groups"])
        .args([
            "env",
            "--chdir=/",
            "HOME=/home/user",
            "XDG_RUNTIME_DIR=/run/user/1000",
        ])
        .args(["PATH=/usr/sbin:/usr/bin", "podman"]);
    command
}

/// What a container of the user has, and what its user is told otherwise.
fn report(machine: &Machine, global: &[&str], devices: &str) -> anyhow::Result<Report> {
    let questions = (0..DemoHost::NODES).fold(Questions::new(), |questions, index| {
        questions.path(format!("/dev/dummy-npu{index}"))
    });
    let mut run = podman(machine);
    run.args(global)
        .args(["run", "--rm", "--network=none"])
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
    add_user(&machine);
    let hooks = "/etc/containers/oci/hooks.d";
    let file = fs::read_dir(machine.private.file(hooks)).unwrap().next();
    let file = file.unwrap().unwrap().path();
    let text = fs::read_to_string(&file).unwrap();
    let hook = binaries::program("boathook").unwrap().display().to_string();
    let installed = format!("{PROGRAMS}/boathook");
    fs::write(&file, text.replace(&hook, &installed)).unwrap();

    let image = Image::new(Rootfs::Busybox).unwrap();
    let mut import = podman(&machine);
    let layer = "/home/user/layer.tar";
    fs::copy(image.layer(), machine.private.file(layer)).unwrap();
    printed(import.args(["import", layer, IMAGE])).unwrap();
    fs::create_dir(machine.private.file("/run/no-hooks")).unwrap();
    let wrapper = format!("--runtime={PROGRAMS}/boathook-runtime");
    let by_hook = format!("--hooks-dir={hooks}");
    for global in [&[&*by_hook][..], &["--hooks-dir=/run/no-hooks", &wrapper]] {
        let report_of = |devices| report(&machine, global, devices);
        let seen = report_of("npu-3").unwrap();
        for index in 0..DemoHost::NODES {
            let path = seen.path(format!("/dev/dummy-npu{index}")).unwrap();
            assert_eq!(
                path.kind != Kind::Missing,
                index == 3,
                "{global:?}: {index}"
            );
            assert!(index != 3 || path.read == Access::Granted, "{}", path.read);
        }
        let message = format!("{:#}", report_of("npu-64").unwrap_err());
        assert!(message.contains("npu-64"), "{global:?}: {message}");
    }
}
