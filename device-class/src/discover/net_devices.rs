//! Finds the network interfaces of a device (`netdev` in its class file).

use std::path::Path;

use serde::Serialize;

use super::{DeviceError, paths};
use crate::class::NetDevice;
use crate::host::{HostView, MAX_ATTRIBUTE_BYTES};
use crate::name::excerpt;
use crate::template::Attributes;

/// The maximum length of a network interface's name in bytes. It is `IFNAMSIZ` of
/// `include/uapi/linux/if.h` without the zero byte.
const MAX_NAME_BYTES: usize = 15;

/// A network interface of a device, such as `eth0`, as it was found in one network namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NetInterface {
    pub name: String,
    /// The name of the interface in the container. It is the same as `name` unless the class file
    /// sets another.
    pub name_in_container: String,
    /// The kernel's index of the interface (`ifindex`). It stays the same when the interface is
    /// renamed. An interface without an index is not moved into a container.
    #[serde(skip)]
    pub index: Option<i32>,
}

/// A search for the network interfaces of one device. The search reads /sys, which shows the
/// interfaces of the network namespace in which it was mounted. So the same search works for the
/// host and for a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetInterfaceSearch {
    spec: NetDevice,
    attributes: Attributes,
}

impl NetInterfaceSearch {
    pub(super) fn new(spec: &NetDevice, attributes: &Attributes) -> Self {
        Self {
            spec: spec.clone(),
            attributes: attributes.clone(),
        }
    }

    /// Returns the interfaces of the device, sorted by their names.
    ///
    /// # Errors
    /// A directory cannot be read, or the kernel would not accept the name of an interface.
    pub fn find(&self, host: &dyn HostView) -> Result<Vec<NetInterface>, DeviceError> {
        let matches = paths::find_matches(&self.spec.path, &self.attributes, host)?;
        let interfaces = matches.into_iter().map(|path_match| {
            let name = path_match.path.file_name().unwrap_or_default();
            let name = name.to_string_lossy().into_owned();
            let name_in_container = match &self.spec.name {
                Some(template) => template.fill(&path_match.attributes)?,
                None => name.clone(),
            };
            for name in [&name, &name_in_container] {
                if !is_interface_name(name) {
                    let name = excerpt(name);
                    let reason = format!(
                        "`{name}` is no name that a network interface can be moved by: rename it"
                    );
                    return Err(DeviceError(reason));
                }
            }
            Ok(NetInterface {
                name,
                name_in_container,
                index: read_index(&path_match.path, host),
            })
        });
        interfaces.collect()
    }

    /// Returns the class's path pattern with the attributes of the device filled in, for messages.
    /// For example, `/sys/bus/usb/devices/1-2/net/{interface}`.
    pub fn pattern(&self) -> String {
        let mut pattern = self.spec.path.to_string();
        for (name, value) in &self.attributes {
            for capture in [format!("{{{name}}}"), format!("{{{name}:number}}")] {
                pattern = pattern.replace(&capture, value);
            }
        }
        excerpt(&pattern)
    }
}

fn read_index(directory: &Path, host: &dyn HostView) -> Option<i32> {
    let index = host
        .read(&directory.join("ifindex"), MAX_ATTRIBUTE_BYTES)
        .ok()?;
    String::from_utf8(index).ok()?.trim().parse().ok()
}

/// Returns whether a text can be the name of a network interface. The kernel refuses some names
/// (`dev_valid_name` in `net/core/dev.c`). A name with `%` is refused here, because the kernel
/// replaces `%d` by a number. A replacement character means that the name was not valid UTF-8.
fn is_interface_name(name: &str) -> bool {
    let is_allowed = |byte: u8| !byte.is_ascii_whitespace() && !b"/:%\x0b".contains(&byte);
    !matches!(name, "" | "." | "..")
        && name.len() <= MAX_NAME_BYTES
        && name.bytes().all(is_allowed)
        && !name.contains(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_the_kernel_accepts() {
        for name in ["can0", "enp0s20f0u1u2", "a.100", "wwan-0"] {
            assert!(is_interface_name(name), "{name}");
        }
        for name in [
            "",
            ".",
            "..",
            "a/b",
            "a b",
            "can%d",
            "a:1",
            "0123456789abcdef",
            "can\u{fffd}",
        ] {
            assert!(!is_interface_name(name), "{name}");
        }
    }
}
