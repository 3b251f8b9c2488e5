//! The announcement of a device node to the programs of a container: its properties in the kernel
//! and in the host's udev database.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use device_class::discover::{FoundNode, Presence};
use device_class::host::{DeviceKind, HostView, MAX_ATTRIBUTE};
use serde::{Deserialize, Serialize};

/// The description of a device node in messages to programs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Announcement {
    /// The path of the device's directory below /sys.
    pub(in crate::live) devpath: String,
    pub(in crate::live) subsystem: String,
    /// The other properties that the kernel reports, such as the number and the name.
    pub(in crate::live) kernel: BTreeMap<String, String>,
    /// The properties that the host's udev adds.
    pub(in crate::live) udev: BTreeMap<String, String>,
    /// The path of the node in the container.
    pub(in crate::live) node: PathBuf,
    /// The device number in the form of `st_rdev`.
    pub(in crate::live) number: u64,
}

impl Announcement {
    /// Describes a device node. Returns `None` if the host's sysfs does not have the device.
    pub(in crate::live) fn from_node(node: &FoundNode, host: &dyn HostView) -> Option<Self> {
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

    /// Whether both announcements are for the same device and the same node.
    pub(in crate::live) fn is_same_node(&self, other: &Self) -> bool {
        let key = |it: &Self| (it.devpath.clone(), it.node.clone(), it.number);
        key(self) == key(other)
    }
}
