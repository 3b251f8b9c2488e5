//! A network interface of this machine that a container gets, at `/`.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use harness::bundle::{Bundle, HookCommand};
use harness::captured::Captured;
use harness::rootfs::Rootfs;

use super::ThisHost;
use crate::lab::{Lab, STAGE, on_each_cgroup_version};

on_each_cgroup_version!(an_interface_of_this_machine_is_moved, a_macvtap_is_moved);

/// A virtual Ethernet interface and its peer.
struct Ethernet(String);

impl Ethernet {
    /// Makes them with a name that no other test of this machine uses, of at most 13 of the 15
    /// characters of a name.
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let ethernet = Self(format!("bhn{number}{}", std::process::id()));
        let (name, peer) = (&ethernet.0, ethernet.peer());
        ip(&format!("link add {name} type veth peer name {peer}"))
            .success()
            .unwrap();
        ethernet
    }

    fn peer(&self) -> String {
        format!("{}p", self.0)
    }
}

impl Drop for Ethernet {
    fn drop(&mut self) {
        // It went with the network namespace of the container that had it.
        ip(&format!("link delete {}", self.peer()));
    }
}

/// The class of the interface with this name, which is `live0` in a container.
fn class_of(name: &str) -> String {
    format!(
        "version = 1\nresource = 'example.com/net'\nrequest = {{ env = 'LIVE_NET' }}\n\
         discover = [{{ path = '/sys/class/net/{{interface}}', require = [{{ value = \
         '{{interface}}', equals = '{name}' }}] }}]\n\
         [device]\nid = 'the-one'\nnetdev = {{ path = '/sys/class/net/{{interface}}', name = \
         'live0' }}\n"
    )
}

/// A container that requests the interface, and runs a program.
fn bundle(host: &ThisHost, arguments: &[&str]) -> Bundle {
    let hook = HookCommand::boathook(STAGE, &host.config_file()).unwrap();
    let bundle = Bundle::builder(Rootfs::Busybox)
        .hook(STAGE, hook.with_private_run().unwrap())
        .env("LIVE_NET", "the-one");
    bundle.args(arguments.iter().copied()).build().unwrap()
}

fn ip(arguments: &str) -> Captured {
    Captured::run(Command::new("ip").args(arguments.split(' '))).unwrap()
}

fn an_interface_of_this_machine_is_moved(lab: &Lab) {
    let ethernet = Ethernet::new();
    let name = &ethernet.0;
    let host = ThisHost::new().class("net", &class_of(name));
    assert_eq!(host.ids(), ["the-one"]);
    let bundle = bundle(&host, &["ls", "/sys/class/net"]);
    assert_eq!(lab.run(&bundle), "live0\nlo\n");
    assert!(!Path::new("/sys/class/net").join(name).exists());
    assert!(host.ids().is_empty());
}

/// An interface of its own on one of the host's, as virtual machines in containers have it. The
/// interface below it stays with the host.
fn a_macvtap_is_moved(lab: &Lab) {
    let ethernet = Ethernet::new();
    let name = format!("{}v", ethernet.0);
    let made = ip(&format!(
        "link add link {} name {name} address 02:00:00:00:00:2a type macvtap mode bridge",
        ethernet.0
    ));
    if !made.status.success() {
        return skip::report("a macvtap is moved", &made.stderr);
    }
    let host = ThisHost::new().class("net", &class_of(&name));
    assert_eq!(host.ids(), ["the-one"]);
    let files = ["cat", "/sys/class/net/live0/address"];
    assert_eq!(lab.run(&bundle(&host, &files)), "02:00:00:00:00:2a\n");
    let exists = |name: &str| Path::new("/sys/class/net").join(name).exists();
    assert!(!exists(&name) && exists(&ethernet.0));
    ip(&format!("link delete {}", ethernet.0))
        .success()
        .unwrap();
}
