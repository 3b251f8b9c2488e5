//! Tests with real device nodes that are made and removed, and with events of the kernel.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;

use harness::kubelet::{DeviceReport, FakeKubelet};
use harness::privilege::missing_for_root;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, setsockopt,
    socket, sockopt,
};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::sys::time::{TimeVal, TimeValLike};

use crate::node::{CARDS, MARK_1, Node, PATIENCE, wait_list, wait_until};

/// A class of chips whose device nodes are in a separate directory.
const CHIPS: &str = r#"
version = 1
resource = "chips.example/chip"
request = { env = "CHIP_VISIBLE_DEVICES" }
discover = [{ path = "/dev/chips/chip{index:number}" }]
[device]
id = "chip-{index}"
index = "{index}"
nodes = ["/dev/chips/chip{index}"]
"#;

/// Makes a chip's device node. It has the device number of /dev/null
/// (Documentation/admin-guide/devices.txt).
fn make(node: &Node, chip: usize) {
    let path = node.path(&format!("host/dev/chips/chip{chip}"));
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    mknod(&path, SFlag::S_IFCHR, mode, makedev(1, 3)).unwrap();
}

/// Waits for a list of `devices` devices, `healthy` of which are healthy.
fn wait_for(kubelet: &FakeKubelet, devices: usize, healthy: usize) {
    let well = |device: &&DeviceReport| device.health == "Healthy";
    wait_list(kubelet, |list| {
        (list.len(), list.iter().filter(well).count()) == (devices, healthy)
    });
}

#[test]
fn nodes_that_a_driver_makes_and_removes_are_followed_without_rescans() {
    if let Some(reason) = missing_for_root() {
        return skip::report("hotplug on real nodes", &reason);
    }
    let mut node = Node::new(&[("chips", CHIPS)]).without_rescans();
    let kubelet = node.kubelet();
    node.start_plugin();
    node.wait_log("classes: chips");
    let directory = node.path("host/dev/chips");
    for _ in 0..3 {
        // The driver is loaded: it makes a directory and then many nodes within a short time.
        fs::create_dir(&directory).unwrap();
        (0..64).for_each(|chip| make(&node, chip));
        wait_for(&kubelet, 64, 64);
        // One chip is reset: it is unhealthy, then it is removed from the list, then it is
        // back.
        node.remove("host/dev/chips/chip7");
        wait_for(&kubelet, 64, 63);
        wait_for(&kubelet, 63, 63);
        make(&node, 7);
        wait_for(&kubelet, 64, 64);
        // One chip comes back before the end of its grace period.
        node.remove("host/dev/chips/chip8");
        wait_for(&kubelet, 64, 63);
        make(&node, 8);
        wait_for(&kubelet, 64, 64);
        // A regular file in the place of a device node is not the device.
        node.write("host/file", "");
        fs::rename(node.path("host/file"), directory.join("chip9")).unwrap();
        wait_for(&kubelet, 64, 63);
        // The driver is unloaded.
        fs::remove_dir_all(&directory).unwrap();
        wait_for(&kubelet, 64, 0);
        wait_until("the resource is withdrawn", || node.sockets().is_empty());
    }
}

/// The file by which the kernel is asked for an event of a device that every machine has. A
/// write has no other effect (Documentation/ABI/testing/sysfs-uevent).
const UEVENT: &str = "/sys/class/mem/null/uevent";

/// Checks that this process receives events of the kernel. It does not receive any in a
/// network namespace that another user namespace owns, or if /sys is not writable.
fn hear_one() -> io::Result<()> {
    let protocol = SockProtocol::NetlinkKObjectUEvent;
    let (family, kind) = (AddressFamily::Netlink, SockType::Datagram);
    let heard = socket(family, kind, SockFlag::SOCK_CLOEXEC, protocol)?;
    bind(heard.as_raw_fd(), &NetlinkAddr::new(0, 1))?;
    setsockopt(&heard, sockopt::ReceiveTimeout, &TimeVal::seconds(2))?;
    fs::write(UEVENT, "change")?;
    recv(heard.as_raw_fd(), &mut [0; 8192], MsgFlags::empty())?;
    Ok(())
}

#[test]
fn a_word_of_the_kernel_makes_the_plugin_look() {
    if let Err(error) = hear_one() {
        return skip::report("uevents", &format!("{UEVENT}: {error}"));
    }
    // The health is an attribute below /sys. The kernel sends no inotify events for changes
    // there.
    let mut node = Node::new(&[("cards", CARDS)]).without_rescans();
    node.add_card(0, "mark-1", -1);
    let kubelet = node.kubelet();
    node.start_plugin();
    let devices = || kubelet.wait_devices(PATIENCE, MARK_1).unwrap();
    assert_eq!(devices()[0].health, "Healthy");
    for (says, health) in [("burnt", "Unhealthy"), ("ok", "Healthy")] {
        node.write("host/sys/card0/health", says);
        fs::write(UEVENT, "change").unwrap();
        assert_eq!(devices()[0].health, health);
    }
}
