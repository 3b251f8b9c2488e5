//! The messages that announce a device to programs in a container: the kernel's
//! (lib/kobject_uevent.c), and the one of udev, which libudev reads (struct
//! `monitor_netlink_header` in systemd's sd-device/device-monitor.c).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use device_class::discover::{FoundNode, Presence};
use device_class::host::{DeviceKind, HostView, MAX_ATTRIBUTE};
use serde::{Deserialize, Serialize};

use crate::container::ContainerNamespace;

/// The size in bytes of the longest message that libudev reads.
const MAX_MESSAGE: usize = 8192;

/// The magic number in a message's header.
const MAGIC: u32 = 0xfeed_cafe;
/// The size of the header in bytes.
const HEADER_SIZE: u32 = 40;

/// The event of a device, which is `ACTION` in a message of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum UeventAction {
    Remove,
    Add,
    /// The device's properties changed, such as its links.
    Change,
}

/// A device node, as messages describe it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Announcement {
    /// The path of the device's directory below /sys.
    devpath: String,
    subsystem: String,
    /// The other properties that the kernel reports, such as the number and the name.
    kernel: BTreeMap<String, String>,
    /// The properties that the host's udev adds.
    udev: BTreeMap<String, String>,
    /// The path of the node in the container.
    pub(super) node: PathBuf,
    /// The device number in the form of `st_rdev`.
    number: u64,
}

impl Announcement {
    /// Describes a device node. Returns `None` if the host's sysfs does not have the device.
    pub(super) fn from_node(node: &FoundNode, host: &dyn HostView) -> Option<Self> {
        let Presence::Found(number) = node.number else {
            return None;
        };
        let (kind, letter) = match number.kind {
            DeviceKind::Block => ("block", 'b'),
            DeviceKind::Character => ("char", 'c'),
        };
        let (major, minor) = (number.major, number.minor);
        let link = PathBuf::from(format!("/sys/dev/{kind}/{major}:{minor}"));
        let directory = host.canonical(&link).ok()?;
        let subsystem = host.read_link(&directory.join("subsystem")).ok()?;
        let read_properties = |path: &Path, prefix: &str| {
            let bytes = host.read(path, MAX_ATTRIBUTE).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let lines = text.lines().filter_map(|line| line.strip_prefix(prefix));
            let plain = lines.filter(|line| !line.contains(char::is_control));
            let pairs = plain.filter_map(|line| line.split_once('='));
            let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
            pairs.collect::<BTreeMap<_, _>>()
        };
        let mut kernel = read_properties(&directory.join("uevent"), "");
        let path = node.container.to_str()?;
        let name = path.strip_prefix("/dev/").unwrap_or(path);
        for (key, value) in [
            ("MAJOR", major.to_string()),
            ("MINOR", minor.to_string()),
            ("DEVNAME", name.to_owned()),
        ] {
            kernel.insert(key.to_owned(), value);
        }
        let database = format!("/run/udev/data/{letter}{major}:{minor}");
        let mut udev = read_properties(Path::new(&database), "E:");
        let links = node.links.iter().filter_map(|link| link.to_str());
        let links: Vec<&str> = links.collect();
        udev.insert("DEVLINKS".to_owned(), links.join(" "));
        Some(Announcement {
            devpath: format!("/{}", directory.strip_prefix("/sys").ok()?.to_str()?),
            subsystem: subsystem.file_name()?.to_str()?.to_owned(),
            kernel,
            udev,
            node: node.container.clone(),
            number: nix::sys::stat::makedev(major.into(), minor.into()),
        })
    }

    /// Whether both are for the same device and the same node.
    pub(super) fn is_same_node(&self, other: &Self) -> bool {
        let key = |it: &Self| (it.devpath.clone(), it.node.clone(), it.number);
        key(self) == key(other)
    }

    /// Whether a container has the node, with the device's number.
    pub(super) fn is_in(&self, container: &ContainerNamespace) -> bool {
        let found = container.open_file(&self.node).ok().flatten();
        found.is_some_and(|found| found.kind().is_device() && found.stat().st_rdev == self.number)
    }

    /// Returns the kernel's message, without the sequence number, which the kernel adds.
    pub(super) fn kernel_message(&self, action: UeventAction) -> Vec<u8> {
        let mut text = format!("{}@{}\0", action.word(), self.devpath);
        text += &self.head(action);
        for (name, value) in &self.kernel {
            text += &format!("{name}={value}\0");
        }
        text.into_bytes()
    }

    /// Returns the message of udev. `micros` is the time since the boot in microseconds.
    pub(super) fn udev_message(&self, action: UeventAction, sequence: u64, micros: i64) -> Vec<u8> {
        let mut text = self.head(action);
        for (name, value) in &self.kernel {
            match name.as_str() {
                "DEVNAME" => text += &format!("DEVNAME={}\0", self.node.display()),
                _ => text += &format!("{name}={value}\0"),
            }
        }
        text += &format!("SEQNUM={sequence}\0USEC_INITIALIZED={micros}\0");
        for (name, value) in &self.udev {
            let property = format!("{name}={value}\0");
            let is_known = self.kernel.contains_key(name) || value.is_empty();
            if !is_known && HEADER_SIZE as usize + text.len() + property.len() <= MAX_MESSAGE {
                text += &property;
            }
        }
        let devtype = self.kernel.get("DEVTYPE").map(String::as_str);
        let mut message = b"libudev\0".to_vec();
        message.extend(MAGIC.to_be_bytes());
        let length = u32::try_from(text.len()).unwrap_or_default();
        for number in [HEADER_SIZE, HEADER_SIZE, length] {
            message.extend(number.to_ne_bytes());
        }
        // The filters of libudev's sockets compare these hashes. The message has no tags.
        let hashes = [hash(&self.subsystem), devtype.map_or(0, hash), 0, 0];
        message.extend(hashes.into_iter().flat_map(u32::to_be_bytes));
        message.extend(text.into_bytes());
        message
    }

    fn head(&self, action: UeventAction) -> String {
        let (word, devpath, subsystem) = (action.word(), &self.devpath, &self.subsystem);
        format!("ACTION={word}\0DEVPATH={devpath}\0SUBSYSTEM={subsystem}\0")
    }
}

impl UeventAction {
    fn word(self) -> &'static str {
        match self {
            UeventAction::Remove => "remove",
            UeventAction::Add => "add",
            UeventAction::Change => "change",
        }
    }
}

/// Computes MurmurHash2 with the seed 0 (A. Appleby, public domain), by which libudev compares
/// names.
fn hash(text: &str) -> u32 {
    const FACTOR: u32 = 0x5bd1_e995;
    let mixed = |part: u32| {
        let part = part.wrapping_mul(FACTOR);
        (part ^ (part >> 24)).wrapping_mul(FACTOR)
    };
    let (parts, rest) = text.as_bytes().as_chunks::<4>();
    let mut hash = u32::try_from(text.len()).unwrap_or_default();
    for part in parts {
        hash = hash.wrapping_mul(FACTOR) ^ mixed(u32::from_ne_bytes(*part));
    }
    if !rest.is_empty() {
        let rest = rest.iter().rev();
        hash ^= rest.fold(0, |sum, byte| (sum << 8) | u32::from(*byte));
        hash = hash.wrapping_mul(FACTOR);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(FACTOR);
    hash ^ (hash >> 15)
}
