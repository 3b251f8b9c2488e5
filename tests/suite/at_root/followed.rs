//! Devices of this machine's kernel that go and come back while a container runs that has
//! them: a character device whose node has another name each time, and a disk. At `/`, with the
//! kernel's own messages.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};

use harness::binaries;
use harness::bundle::{Bundle, HookCommand, Stage};
use harness::patience::wait_until;
use harness::probe::Access;
use harness::rootfs::Rootfs;
use harness::runc::Container;

use super::ThisHost;
use super::hot_added::HotAdded;
use crate::lab::{Lab, on_each_cgroup_version};

on_each_cgroup_version!(devices_of_the_kernel_are_followed);

fn devices_of_the_kernel_are_followed(lab: &Lab) {
    for (kind, added) in [
        ("a tap", HotAdded::tap as fn() -> Option<HotAdded>),
        ("a loop device", HotAdded::disk),
    ] {
        for case in [Case::There, Case::Awaited, Case::LateClass] {
            match added() {
                Some(device) => follow(lab, device, case),
                None => skip::report("devices_of_the_kernel_are_followed", kind),
            }
        }
    }
}

/// Whether the device is there when the container starts, or why the container starts without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    There,
    /// The request is `NAME?`.
    Awaited,
    /// The class has `late = true`.
    LateClass,
}

/// A class of a device that is discovered so, and may come later.
pub(super) fn late_class(discovered: &str) -> String {
    format!(
        "version = 1\nresource = 'example.com/real'\nfollow = true\nlate = true\n\
         request = {{ env = 'REAL' }}\ndiscover = [{{ {discovered} }}]\n\
         [device]\nid = 'the-one'\nnodes = ['/dev/{{name}}']\n"
    )
}

fn follow(lab: &Lab, mut device: HotAdded, case: Case) {
    let mut class = late_class(&device.discovered());
    if case != Case::LateClass {
        class = class.replace("late = true\n", "");
    }
    // Those who follow at `/` have the same records: a class of its own for each.
    let name = format!("real-{}", device.number());
    let host = ThisHost::new().class(&name, &class);
    let hook = HookCommand::boathook(Stage::CreateRuntime, &host.config_file()).unwrap();
    let bundle = Bundle::builder(Rootfs::Busybox)
        .hook(Stage::CreateRuntime, hook)
        .env(
            "REAL",
            if case == Case::Awaited {
                "the-one?"
            } else {
                "the-one"
            },
        )
        .build()
        .unwrap();
    let mut nodes = vec![device.node()];
    let is_late = case != Case::There;
    if is_late {
        device.unplug();
    }
    let running = lab.start(&bundle);
    let record = format!("/run/boathook/attached/{}", bundle.id());
    assert!(fs::exists(&record).unwrap());
    let follower = Follower::start(lab, &host);
    for round in 0..3 {
        if round > 0 || !is_late {
            let (node, number) = (device.node(), device.device());
            device.unplug();
            let is_gone = wait_until(|| seen(&running, &node).is_none());
            assert!(is_gone, "{case:?} {round}: {node}");
            let opened = running.open_own(number).unwrap();
            let refused = Some(Access::refused("EPERM"));
            assert_eq!(opened, refused, "{case:?} {round}: {node}");
        }
        device.plug_in();
        let (node, number) = (device.node(), device.device());
        let is_back = wait_until(|| seen(&running, &node) == Some(number));
        assert!(is_back, "{case:?} {round}: {node}");
        nodes.push(node);
    }
    if device.node().starts_with("/dev/tap") {
        nodes.dedup();
        assert_eq!(nodes.len(), 4, "a tap has another node each time");
    }
    drop(running);
    // The next message is of the device that goes.
    drop(device);
    assert!(wait_until(|| !fs::exists(&record).unwrap()));
    drop(follower);
}

/// The number of the container's node, if it has one.
fn seen(container: &Container<'_>, node: &str) -> Option<(u64, u64)> {
    let path = format!("/proc/{}/root{node}", container.pid().unwrap());
    let number = fs::metadata(path).ok()?.rdev();
    Some((nix::sys::stat::major(number), nix::sys::stat::minor(number)))
}

struct Follower(Child);

impl Follower {
    fn start(lab: &Lab, host: &ThisHost) -> Self {
        let program = binaries::program("boathook").unwrap();
        let mut command: Command = lab.runc.view().command(&program).unwrap();
        command
            .arg("--config")
            .arg(host.config_file())
            .arg("follow");
        Self(command.stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}
