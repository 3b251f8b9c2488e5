//! Names of containers, given to commands that change a container: images, and users who
//! choose an id, must not make a command of root's change another one.

use std::process::Stdio;

use harness::binaries;
use harness::bundle::Bundle;
use harness::captured::Captured;
use harness::rootfs::Rootfs;
use serde_json::Value;

use super::podman::{load, machine};
use crate::engines::machine::Machine;

/// Returns the output of `boathook` about a container of the machine.
fn boathook(machine: &Machine, arguments: &[&str]) -> Captured {
    let program = binaries::program("boathook").unwrap();
    let mut command = machine.private.command(program);
    // runc's own directory, which is not below the demo host's root.
    let runc = ["--root", "/run/runc"];
    Captured::run(command.args(arguments).args(runc)).unwrap()
}

fn podman(machine: &Machine, arguments: &[&str]) -> String {
    let mut command = machine.private.command("podman");
    let ran = Captured::run(command.args(arguments));
    ran.and_then(Captured::success).unwrap().stdout
}

/// A container of runc in the machine, whose user has chosen its id.
struct Runc<'m> {
    machine: &'m Machine,
    state: &'m str,
    id: &'m str,
    bundle: Bundle,
}

impl<'m> Runc<'m> {
    fn start(machine: &'m Machine, state: &'m str, id: &'m str) -> Self {
        let cgroup = machine.cgroup_parent().join(state.replace('/', "-"));
        let bundle = Bundle::builder(Rootfs::Busybox).cgroups_path(cgroup);
        let container = Runc {
            machine,
            state,
            id,
            bundle: bundle.build().unwrap(),
        };
        let directory = container.bundle.directory().to_str().unwrap();
        container.command(&["run", "--detach", "--bundle", directory, id]);
        container
    }

    fn command(&self, arguments: &[&str]) {
        let runc = harness::runc::program().unwrap();
        let mut command = self.machine.private.command(runc);
        command.args(["--root", self.state]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let ran = command.stderr(Stdio::null()).status().unwrap();
        assert!(ran.success(), "{arguments:?}");
    }

    fn delete(self) {
        self.command(&["delete", "--force", self.id]);
    }
}

/// Starts a container of podman, and returns its id.
fn start(machine: &Machine, name: &str, image: &str) -> String {
    let parent = format!("--cgroup-parent={}", machine.cgroup_parent().display());
    let run = ["run", "--detach", "--network=none", &parent, "--name", name];
    let id = podman(machine, &[&run[..], &[image]].concat());
    id.trim().to_owned()
}

/// The names of the demo host's devices in a container.
fn devices(machine: &Machine, name: &str) -> String {
    let list = ["exec", name, "/bin/sh", "-c", "cd /dev; echo dummy*"];
    podman(machine, &list).trim().replace("dummy*", "")
}

/// podman copies the annotations of an image into config.json, among them those of nerdctl's.
#[test]
fn an_image_cannot_choose_the_name_of_its_container() {
    let Some(machine) = machine("") else { return };
    let annotations = [
        ("nerdctl/name", "zigbee2mqtt"),
        ("io.kubernetes.container.name", "zigbee2mqtt"),
        ("io.kubernetes.cri.container-name", "zigbee2mqtt"),
        ("io.podman.annotations.name", "zigbee2mqtt"),
    ];
    let evil = load(&machine, "evil", &annotations);
    start(&machine, "innocent", &evil);
    for command in [
        &["attach", "zigbee2mqtt", "dummy-npu=3"][..],
        &["detach", "zigbee2mqtt"],
    ] {
        let refused = boathook(&machine, command);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        let said = "no container zigbee2mqtt on this host";
        assert!(refused.stderr.contains(said), "{refused:?}");
    }
    assert_eq!(devices(&machine, "innocent"), "");

    // Beside it the name means the container that has it.
    let plain = load(&machine, "plain", &[]);
    let id = start(&machine, "zigbee2mqtt", &plain);
    let attached = boathook(&machine, &["attach", "zigbee2mqtt", "dummy-npu=3"]);
    let said = format!("attached to container {id} (zigbee2mqtt)\n");
    assert!(attached.stdout.ends_with(&said), "{attached:?}");
    assert_eq!(devices(&machine, "innocent"), "");
    assert_eq!(devices(&machine, "zigbee2mqtt"), "dummy-npu3");
    let used = boathook(&machine, &["list", "--used"]).stdout;
    assert_eq!(used.matches("zigbee2mqtt (attached)").count(), 1, "{used}");

    let detached = boathook(&machine, &["detach", "zigbee2mqtt", "--json"]);
    let detached: Value = serde_json::from_str(&detached.stdout).unwrap();
    let changed = serde_json::json!({"id": id, "name": "zigbee2mqtt"});
    assert_eq!(detached["container"], changed);
    assert_eq!(devices(&machine, "zigbee2mqtt"), "");
}

/// runc keeps annotations among its own labels, of which one has the bundle: without that
/// nothing is taken away from the container.
#[test]
fn an_image_cannot_choose_the_bundle_of_its_container() {
    let Some(machine) = machine("") else { return };
    let plain = load(&machine, "plain", &[]);
    let other = start(&machine, "other", &plain);
    let storage = machine.path("storage/overlay-containers");
    let others = storage.join(other).join("userdata").display().to_string();
    for (name, bundle) in [("nowhere", "/nowhere"), ("others", &others)] {
        let image = load(&machine, name, &[("bundle", bundle)]);
        let id = start(&machine, name, &image);
        for (arguments, has) in [
            (&["attach", name, "dummy-npu=3"][..], "dummy-npu3"),
            (&["detach", name], ""),
        ] {
            let ran = boathook(&machine, arguments);
            assert!(ran.status.success(), "{ran:?}");
            assert!(
                ran.stdout.contains(&format!("container {id} ({name})")),
                "{ran:?}"
            );
            assert_eq!(devices(&machine, name), has);
        }
    }
    assert_eq!(devices(&machine, "other"), "");
}

/// Runtimes let the user choose an id.
#[test]
fn a_name_is_not_the_beginning_of_another_containers_id() {
    let Some(machine) = machine("") else { return };
    let plain = load(&machine, "plain", &[]);
    let id = start(&machine, "web", &plain);
    let evil = Runc::start(&machine, "/run/runc", "web-evil");
    let attached = boathook(&machine, &["attach", "web", "dummy-npu=3", "--json"]);
    assert_eq!(devices(&machine, "web"), "dummy-npu3", "{attached:?}");
    let attached: Value = serde_json::from_str(&attached.stdout).unwrap();
    let changed = serde_json::json!({"id": id, "name": "web"});
    assert_eq!(attached["container"], changed);

    // The beginning of an id that is nobody's name, and a name that is somebody's id.
    let attached = boathook(&machine, &["attach", "web-", "dummy-npu=5"]);
    assert!(
        attached
            .stdout
            .ends_with("attached to container web-evil\n"),
        "{attached:?}"
    );
    podman(&machine, &["rename", "web", "web-evil"]);
    let detached = boathook(&machine, &["detach", "web-evil"]);
    assert_eq!(
        detached.stdout,
        "npu-5 of dummy-npu: detached from container web-evil\n"
    );
    assert_eq!(devices(&machine, &id), "dummy-npu3");
    evil.delete();
    let detached = boathook(&machine, &["detach", "web-evil"]);
    assert!(
        detached.stdout.contains(&format!("{id} (web-evil)")),
        "{detached:?}"
    );
}

/// Two runtimes, or one with two directories of states, such as for containerd's namespaces.
#[test]
fn an_id_that_two_containers_have_means_neither() {
    let Some(machine) = machine("") else { return };
    let states = ["run/runc", "run/youki"].map(|path| machine.devices.root().join(path));
    let [one, other] = states.each_ref().map(|path| path.to_str().unwrap());
    let first = Runc::start(&machine, one, "twin");
    let attach = ["attach", "twin", "dummy-npu=3"];
    let attached = boathook(&machine, &attach);
    assert!(attached.status.success(), "{attached:?}");
    let second = Runc::start(&machine, other, "twin");
    for arguments in [&attach[..], &["detach", "twin"], &["refresh", "twin"]] {
        let refused = boathook(&machine, arguments);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        let said = "two containers have the id twin: ";
        assert!(refused.stderr.contains(said), "{refused:?}");
    }
    // The directory of its runtime's states says which one is meant.
    let program = binaries::program("boathook").unwrap();
    let mut detach = machine.private.command(program);
    let detached = Captured::run(detach.args(["detach", "twin", "--root", one])).unwrap();
    let said = "detached from container twin";
    assert!(detached.stdout.contains(said), "{detached:?}");
    first.delete();
    second.delete();
}
