//! What programs in a container are told of a device: the kernel's message
//! (lib/kobject_uevent.c) and udev's, which libudev reads (struct `monitor_netlink_header` of
//! systemd's sd-device/device-monitor.c).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use device_class::discover::{FoundNode, Presence};
use device_class::host::{DeviceKind, HostView, MAX_ATTRIBUTE};
use serde::{Deserialize, Serialize};

use crate::container::ContainerNamespace;

/// The longest message of udev's that libudev reads, in bytes.
const LONGEST: usize = 8192;

const MAGIC: u32 = 0xfeed_cafe;
const HEADER: u32 = 40;

/// What happened to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Action {
    Remove,
    Add,
    /// Something is known of it now that was not before, as its links.
    Change,
}

/// A device as messages have it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Announcement {
    /// Its directory below /sys.
    devpath: String,
    subsystem: String,
    /// What the kernel says of it beyond that: its number, its name.
    kernel: BTreeMap<String, String>,
    /// What the host's udev adds.
    udev: BTreeMap<String, String>,
    /// Its node in the container.
    pub(super) node: PathBuf,
    number: u64,
}

impl Announcement {
    /// What is to be said of a node; `None` if the host's sysfs does not have the device.
    pub(super) fn of(node: &FoundNode, host: &dyn HostView) -> Option<Self> {
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
        let lines = |path: &Path, prefix: &str| {
            let bytes = host.read(path, MAX_ATTRIBUTE).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let lines = text.lines().filter_map(|line| line.strip_prefix(prefix));
            let plain = lines.filter(|line| !line.contains(char::is_control));
            let pairs = plain.filter_map(|line| line.split_once('='));
            let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
            pairs.collect::<BTreeMap<_, _>>()
        };
        let mut kernel = lines(&directory.join("uevent"), "");
        let path = node.container.to_str()?;
        let name = path.strip_prefix("/dev/").unwrap_or(path);
        for (key, value) in [
            ("MAJOR", major.to_string()),
            ("MINOR", minor.to_string()),
            ("DEVNAME", name.to_owned()),
        ] {
            kernel.insert(key.to_owned(), value);
        }
        let known = format!("/run/udev/data/{letter}{major}:{minor}");
        let mut udev = lines(Path::new(&known), "E:");
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

    /// Whether both are of one device in one place.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let key = |told: &Self| (told.devpath.clone(), told.node.clone(), told.number);
        key(self) == key(other)
    }

    /// Whether a container has the node.
    pub(super) fn is_in(&self, container: &ContainerNamespace) -> bool {
        let there = container.look(&self.node).ok().flatten();
        there.is_some_and(|there| there.kind().is_device() && there.stat().st_rdev == self.number)
    }

    /// The kernel's message, without the sequence number, which the kernel adds.
    pub(super) fn of_kernel(&self, action: Action) -> Vec<u8> {
        let mut text = format!("{}@{}\0", action.word(), self.devpath);
        text += &self.head(action);
        for (name, value) in &self.kernel {
            text += &format!("{name}={value}\0");
        }
        text.into_bytes()
    }

    /// udev's message, so many microseconds after the boot.
    pub(super) fn of_udev(&self, action: Action, sequence: u64, micros: i64) -> Vec<u8> {
        let mut text = self.head(action);
        for (name, value) in &self.kernel {
            match name.as_str() {
                "DEVNAME" => text += &format!("DEVNAME={}\0", self.node.display()),
                _ => text += &format!("{name}={value}\0"),
            }
        }
        text += &format!("SEQNUM={sequence}\0USEC_INITIALIZED={micros}\0");
        for (name, value) in &self.udev {
            let more = format!("{name}={value}\0");
            let is_known = self.kernel.contains_key(name) || value.is_empty();
            if !is_known && HEADER as usize + text.len() + more.len() <= LONGEST {
                text += &more;
            }
        }
        let devtype = self.kernel.get("DEVTYPE").map(String::as_str);
        let mut message = b"libudev\0".to_vec();
        message.extend(MAGIC.to_be_bytes());
        let length = u32::try_from(text.len()).unwrap_or_default();
        for number in [HEADER, HEADER, length] {
            message.extend(number.to_ne_bytes());
        }
        // By these a socket's filter chooses; no tags.
        let hashes = [hash(&self.subsystem), devtype.map_or(0, hash), 0, 0];
        message.extend(hashes.into_iter().flat_map(u32::to_be_bytes));
        message.extend(text.into_bytes());
        message
    }

    fn head(&self, action: Action) -> String {
        let (word, devpath, subsystem) = (action.word(), &self.devpath, &self.subsystem);
        format!("ACTION={word}\0DEVPATH={devpath}\0SUBSYSTEM={subsystem}\0")
    }
}

impl Action {
    fn word(self) -> &'static str {
        match self {
            Action::Remove => "remove",
            Action::Add => "add",
            Action::Change => "change",
        }
    }
}

/// MurmurHash2 with the seed 0 (A. Appleby, public domain), as libudev has it of names.
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
