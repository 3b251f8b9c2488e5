//! The kernel's list of USB devices in a container, while its device is unplugged and comes back.
//! The hosts' /sys is a written one, which the container has as its own.

mod other_devices;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use harness::bundle::{Bundle, BundleBuilder, HookCommand};
use harness::demo_host::DemoHost;
use harness::patience::wait_until;
use harness::rootfs::Rootfs;

use super::follow::{Follower, tell};
use crate::lab::{Lab, STAGE, hook, on_each_cgroup_version};

on_each_cgroup_version!(the_list_has_the_device_wherever_it_is_plugged_in);

pub(super) const LIST: &str = "sys/bus/usb/devices";

/// A USB device with one interface.
pub(super) struct Stick<'h> {
    pub(super) host: &'h DemoHost,
    pub(super) port: &'static str,
    pub(super) number: u32,
}

impl Stick<'_> {
    pub(super) fn node(&self) -> PathBuf {
        PathBuf::from(format!("dev/bus/usb/001/{:03}", self.number))
    }

    fn directory(&self) -> PathBuf {
        self.host.root().join("sys/devices/usb1").join(self.port)
    }

    /// The interface follows later, as with the kernel.
    pub(super) fn plug_in(&self, vendor: &str, device: usize) {
        let directory = self.directory();
        fs::create_dir_all(&directory).unwrap();
        for (name, text) in [
            ("idVendor", vendor),
            ("idProduct", "06c1"),
            ("busnum", "1"),
            ("devnum", &self.number.to_string()),
            ("serial", "A1"),
        ] {
            fs::write(directory.join(name), format!("{text}\n")).unwrap();
        }
        let list = self.host.root().join(LIST);
        fs::create_dir_all(&list).unwrap();
        let target = Path::new("../../../devices/usb1").join(self.port);
        symlink(target, list.join(self.port)).unwrap();
        let node = self.host.root().join(self.node());
        fs::create_dir_all(node.parent().unwrap()).unwrap();
        self.host.device(device).make_node(&node).unwrap();
    }

    pub(super) fn interface(&self) -> String {
        format!("{}:1.0", self.port)
    }

    pub(super) fn add_interface(&self) {
        fs::create_dir(self.directory().join(self.interface())).unwrap();
        let target = Path::new("../../../devices/usb1").join(self.port);
        let link = self.host.root().join(LIST).join(self.interface());
        symlink(target.join(self.interface()), link).unwrap();
    }

    /// As the kernel does when a program chooses another configuration of the device.
    pub(super) fn remove_interface(&self) {
        fs::remove_dir(self.directory().join(self.interface())).unwrap();
        fs::remove_file(self.host.root().join(LIST).join(self.interface())).unwrap();
    }

    pub(super) fn unplug(&self) {
        let list = self.host.root().join(LIST);
        fs::remove_dir_all(self.directory()).unwrap();
        fs::remove_file(list.join(self.port)).unwrap();
        fs::remove_file(list.join(self.interface())).unwrap();
        fs::remove_file(self.host.root().join(self.node())).unwrap();
    }
}

fn container(host: &DemoHost) -> BundleBuilder {
    let sys = HookCommand::binding(&host.root().join("sys"), "/sys");
    Bundle::builder(Rootfs::Busybox)
        .hook(STAGE, sys)
        .hook(STAGE, hook(host))
        .env("FELICA_VISIBLE_DEVICES", "felica-A1")
}

fn the_list_has_the_device_wherever_it_is_plugged_in(lab: &Lab) {
    for has_modem in [false, true] {
        assert_listed(lab, has_modem);
    }
}

/// `has_modem`: the engine has given the container a device, by `--device`, which stays listed.
fn assert_listed(lab: &Lab, has_modem: bool) {
    let host = &DemoHost::new().unwrap();
    host.add_shipped_class("usb-reader").unwrap();
    let stick = |port, number| Stick { host, port, number };
    for (port, number, vendor, device) in [("1-1", 2, "18d1", 4), ("1-2", 5, "054c", 3)] {
        stick(port, number).plug_in(vendor, device);
        stick(port, number).add_interface();
    }
    let mut builder = container(host);
    if has_modem {
        let (major, minor) = host.device(4).number();
        let link = host.root().join(format!("sys/dev/char/{major}:{minor}"));
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink("../../devices/usb1/1-1/1-1:1.0", link).unwrap();
        builder = builder.char_device("/dev/modem", (major, minor), "rw");
    }
    let expected = |ports: &[&str]| {
        let modem = if has_modem { &["1-1"][..] } else { &[] };
        let ports = modem.iter().chain(ports);
        let names = ports.flat_map(|port| [(*port).to_owned(), format!("{port}:1.0")]);
        names.collect::<Vec<String>>()
    };
    let bundle = builder.build().unwrap();
    let running = lab.start(&bundle);
    let root = PathBuf::from(format!("/proc/{}/root", running.pid().unwrap()));
    let listed = || {
        let entries = fs::read_dir(root.join(LIST)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    };
    let masks = || {
        let mountinfo = root.parent().unwrap().join("mountinfo");
        let text = fs::read_to_string(mountinfo).unwrap();
        let place = Some("/sys/bus/usb/devices");
        let mounts = text.lines();
        mounts
            .filter(|line| line.split(' ').nth(4) == place)
            .count()
    };
    // A link that leads to the device's own directory.
    let devnum = |port: &str| {
        let link = fs::read_link(root.join(LIST).join(port)).unwrap();
        let directory = link.strip_prefix("../../..").unwrap();
        let text = fs::read_to_string(root.join("sys").join(directory).join("devnum")).unwrap();
        text.trim().to_owned()
    };
    assert_eq!(listed(), expected(&["1-2"]));
    assert_eq!((devnum("1-2").as_str(), masks()), ("5", 1));

    let follower = Follower::start(lab, host);
    let mut now = stick("1-2", 5);
    let mut logged = 0;
    for (port, number, device) in [("1-2", 7, DemoHost::UNLIKE), ("1-4", 9, 3), ("1-2", 11, 3)] {
        now.unplug();
        tell();
        // The list does not have the device while it is unplugged: its links would lead nowhere.
        // The follower unmounts a mask before it mounts the next one.
        let is_gone = wait_until(|| masks() == 1 && listed() == expected(&[]));
        assert!(is_gone, "before {port} {number}: {:?}", listed());
        now = stick(port, number);
        now.plug_in("054c", device);
        tell();
        let node = root.join(now.node());
        assert!(wait_until(|| node.exists()), "{port} {number}");
        let without_interface = || {
            let mut names = expected(&[port]);
            names.retain(|name| *name != now.interface());
            names
        };
        let is_logged = || follower.has_said("felica-A1 of usb-reader is /dev/");
        assert!(wait_until(|| is_logged() > logged), "{port} {number}");
        logged = is_logged();
        // The container has the device before the device has an interface, which appears, and
        // disappears, while the device stays as it is.
        for has_interface in [false, true, false] {
            let names = if has_interface {
                expected(&[port])
            } else {
                without_interface()
            };
            let is_listed = wait_until(|| masks() == 1 && listed() == names);
            assert!(is_listed, "{port} {number} {has_interface}: {:?}", listed());
            if has_interface {
                now.remove_interface();
            } else {
                now.add_interface();
            }
            tell();
        }
        // The mask of another socket is removed.
        let is_back = wait_until(|| masks() == 1 && listed() == expected(&[port]));
        assert!(is_back, "{port} {number}: {} {:?}", masks(), listed());
        assert_eq!(devnum(port), number.to_string());
        // A program of the container can remove the interfaces and add them again at any time.
        assert_eq!(is_logged(), logged, "{}", follower.said());
    }
    drop(running);
    lab.assert_nothing_left(&bundle);
}
