//! The announcement of a device node: a uevent that is sent to the programs of a container. It
//! contains the device's properties from the kernel and from the host's udev database.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use device_class::discover::{FoundNode, PathLookup};
use device_class::host::{DeviceKind, HostView, MAX_ATTRIBUTE_BYTES};
use serde::{Deserialize, Serialize};

/// The content of a uevent that tells the programs of a container about a device node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Announcement {
    /// The path of the device's directory in sysfs, without `/sys`, such as
    /// `/devices/virtual/misc/kvm`.
    pub devpath: String,
    pub subsystem: String,
    /// The other properties that the kernel reports in a uevent, such as `MAJOR` and `DEVNAME`.
    #[serde(rename = "kernel")]
    pub kernel_properties: BTreeMap<String, String>,
    /// The properties that udev on the host adds to those of the kernel, such as `DEVLINKS`.
    #[serde(rename = "udev")]
    pub udev_properties: BTreeMap<String, String>,
    /// The path of the node in the container, such as `/dev/ttyUSB0`.
    #[serde(rename = "node")]
    pub node_path: PathBuf,
    /// The device number in the format of `st_rdev` (stat(2)).
    pub number: u64,
}

impl Announcement {
    /// Creates the announcement of a device node from the host's sysfs and udev database. Returns
    /// `None` if sysfs does not contain the device, for example because it was unplugged.
    pub fn from_node(node: &FoundNode, host: &dyn HostView) -> Option<Self> {
        let PathLookup::Found(number) = node.number else {
            return None;
        };
        let (directory_name, database_prefix) = match number.kind {
            DeviceKind::Block => ("block", 'b'),
            DeviceKind::Character => ("char", 'c'),
        };
        let (major, minor) = (number.major, number.minor);
        let sysfs_link = PathBuf::from(format!("/sys/dev/{directory_name}/{major}:{minor}"));
        let sysfs_dir = host.canonicalize(&sysfs_link).ok()?;
        let subsystem = host.read_link(&sysfs_dir.join("subsystem")).ok()?;
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
        let mut kernel_properties = read_properties(&sysfs_dir.join("uevent"), "");
        let node_path = node.container_path.to_str()?;
        let device_name = node_path.strip_prefix("/dev/").unwrap_or(node_path);
        for (key, value) in [
            ("MAJOR", major.to_string()),
            ("MINOR", minor.to_string()),
            ("DEVNAME", device_name.to_owned()),
        ] {
            kernel_properties.insert(key.to_owned(), value);
        }
        let database_path = format!("/run/udev/data/{database_prefix}{major}:{minor}");
        let mut udev_properties = read_properties(Path::new(&database_path), "E:");
        let links = node.links.iter().filter_map(|link| link.to_str());
        let links: Vec<&str> = links.collect();
        udev_properties.insert("DEVLINKS".to_owned(), links.join(" "));
        Some(Announcement {
            devpath: format!("/{}", sysfs_dir.strip_prefix("/sys").ok()?.to_str()?),
            subsystem: subsystem.file_name()?.to_str()?.to_owned(),
            kernel_properties,
            udev_properties,
            node_path: node.container_path.clone(),
            number: nix::sys::stat::makedev(major.into(), minor.into()),
        })
    }

    /// Reports whether both announcements describe the same device at the same node path. Their
    /// properties may differ.
    pub fn is_same_node(&self, other: &Self) -> bool {
        (&self.devpath, &self.node_path, self.number)
            == (&other.devpath, &other.node_path, other.number)
    }
}
