//! The announcement of a device node, which is sent to the programs of a container. It has the
//! properties that the device has in the kernel and in the host's udev database.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use device_class::discover::{FoundNode, Presence};
use device_class::host::{DeviceKind, HostView, MAX_ATTRIBUTE_BYTES};
use serde::{Deserialize, Serialize};

/// A device node as the messages to the programs of a container describe it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Announcement {
    /// The path of the device's directory in sysfs, without `/sys`.
    pub devpath: String,
    pub subsystem: String,
    /// The properties that the kernel reports in a uevent in addition to the fields above, such as
    /// `MAJOR` and `DEVNAME`.
    #[serde(rename = "kernel")]
    pub kernel_properties: BTreeMap<String, String>,
    /// The properties that udev on the host adds to those of the kernel.
    #[serde(rename = "udev")]
    pub udev_properties: BTreeMap<String, String>,
    /// The path of the node in the container.
    #[serde(rename = "node")]
    pub node_path: PathBuf,
    /// The device number in the format of `st_rdev`.
    pub number: u64,
}

impl Announcement {
    /// Creates the announcement of a device node. Returns `None` if the device is not in the sysfs
    /// of the host.
    pub fn from_node(node: &FoundNode, host: &dyn HostView) -> Option<Self> {
        let Presence::Found(number) = node.number else {
            return None;
        };
        let (directory_name, database_prefix) = match number.kind {
            DeviceKind::Block => ("block", 'b'),
            DeviceKind::Character => ("char", 'c'),
        };
        let (major, minor) = (number.major, number.minor);
        let link = PathBuf::from(format!("/sys/dev/{directory_name}/{major}:{minor}"));
        let directory = host.canonicalize(&link).ok()?;
        let subsystem = host.read_link(&directory.join("subsystem")).ok()?;
        let read_properties = |path: &Path, prefix: &str| {
            let bytes = host.read(path, MAX_ATTRIBUTE_BYTES).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let lines = text.lines().filter_map(|line| line.strip_prefix(prefix));
            let printable_lines = lines.filter(|line| !line.contains(char::is_control));
            let properties = printable_lines.filter_map(|line| line.split_once('='));
            let owned_properties =
                properties.map(|(name, value)| (name.to_owned(), value.to_owned()));
            owned_properties.collect::<BTreeMap<_, _>>()
        };
        let mut kernel_properties = read_properties(&directory.join("uevent"), "");
        let path = node.container_path.to_str()?;
        let name = path.strip_prefix("/dev/").unwrap_or(path);
        for (key, value) in [
            ("MAJOR", major.to_string()),
            ("MINOR", minor.to_string()),
            ("DEVNAME", name.to_owned()),
        ] {
            kernel_properties.insert(key.to_owned(), value);
        }
        let database = format!("/run/udev/data/{database_prefix}{major}:{minor}");
        let mut udev_properties = read_properties(Path::new(&database), "E:");
        let links = node.links.iter().filter_map(|link| link.to_str());
        let links: Vec<&str> = links.collect();
        udev_properties.insert("DEVLINKS".to_owned(), links.join(" "));
        Some(Announcement {
            devpath: format!("/{}", directory.strip_prefix("/sys").ok()?.to_str()?),
            subsystem: subsystem.file_name()?.to_str()?.to_owned(),
            kernel_properties,
            udev_properties,
            node_path: node.container_path.clone(),
            number: nix::sys::stat::makedev(major.into(), minor.into()),
        })
    }

    /// Reports whether both announcements describe the same device at the same node path.
    pub fn is_same_node(&self, other: &Self) -> bool {
        (&self.devpath, &self.node_path, self.number)
            == (&other.devpath, &other.node_path, other.number)
    }
}
