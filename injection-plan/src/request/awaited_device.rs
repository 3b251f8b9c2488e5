//! Finds the awaited devices of a request: the devices that the host does not have yet, and that
//! the container gets when they arrive.

use std::path::PathBuf;

use device_class::DeviceClass;
use device_class::class::ClassSpec;
use device_class::discover::Inventory;
use device_class::name::{DeviceId, IndexRange};
use serde::{Deserialize, Serialize};

use super::cdi_name::{CdiKind, split_cdi_kind};
use super::list::{DeviceList, DeviceListItem, item_name, quote};
use super::names::{RequestNames, ResolvedItem};
use super::{RequestError, Selection};

/// The maximum number of names with the suffix `?` for devices of one class in a container's
/// request. The devices that the host already has count as well, because they are awaited again
/// when they are unplugged.
pub const MAX_AWAITED_DEVICES: usize = 64;

/// An awaited device: a container has requested it, but the host does not have it yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AwaitedDevice {
    /// Every device of the class that arrives after the start of the container.
    All,
    /// One device. The container gets it as soon as the host has it.
    Device {
        /// The name in the request. Attachment records and `explain --json` contain it as a string.
        #[serde(with = "item_name")]
        name: DeviceListItem,
        /// The path of the device's node in the container, if the request chose one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<PathBuf>,
    },
}

impl AwaitedDevice {
    fn from_item(item: &DeviceListItem, class: &ClassSpec) -> Self {
        let (kind, text) = split_cdi_kind(item, class);
        AwaitedDevice::Device {
            // The name is quoted, because a name that looks like an index must not select the
            // device with this index.
            name: match kind {
                None | Some(CdiKind::AnyResource) => DeviceListItem::from_quoted_name(text),
                Some(CdiKind::Resource(_)) => item.without_suffix(),
            },
            path: item.container_path.clone(),
        }
    }

    /// Returns the device list that requests this device, or `all` for every device of a class.
    pub fn to_device_list(&self) -> DeviceList {
        DeviceList::from_item(match self {
            AwaitedDevice::All => DeviceListItem::from_unquoted_text("all"),
            AwaitedDevice::Device { name, path: None } => name.clone(),
            AwaitedDevice::Device {
                name,
                path: Some(path),
            } => name.clone().with_container_path(path),
        })
    }

    /// Returns the request for this device as text for messages.
    pub fn to_request_text(&self) -> String {
        self.to_device_list().to_string()
    }

    /// Returns the name of the device without its quotes. If the name is a path, returns the last
    /// component. Returns `None` if every device of a class is awaited.
    pub fn short_name(&self) -> Option<&str> {
        match self {
            AwaitedDevice::All => None,
            AwaitedDevice::Device { name, .. } => name.text.rsplit('/').next(),
        }
    }
}

/// Returns an error if the item is an index with the suffix `?`. An index cannot name an awaited
/// device, because it changes when other devices are plugged in or removed.
pub(super) fn check_awaited_name(
    item: &DeviceListItem,
    class: &ClassSpec,
) -> Result<(), RequestError> {
    let (_, text) = split_cdi_kind(item, class);
    if item.is_awaited_if_absent && !item.is_quoted && is_index(text) {
        return Err(RequestError::AwaitedIndex(text.to_owned()));
    }
    if let Some(path) = &item.container_path
        && let Some(name) = text.strip_suffix('?')
        && !item.is_quoted
    {
        let path = path.display();
        return Err(RequestError::MisplacedMark {
            item: item.to_text(),
            corrected_item: format!("{name}:{path}?"),
        });
    }
    Ok(())
}

/// Returns the item of a request for a device that may arrive later. `name` is the name of the
/// device in the form that a request accepts. A name of digits, such as a serial number, needs
/// quotes, because without them it is an index, and an index cannot be awaited.
pub fn format_awaited_name(name: &str) -> String {
    if is_index(name) {
        format!("{}?", quote(name))
    } else {
        format!("{name}?")
    }
}

/// Returns whether a text is the index of a device, a range, or the index of a partition, such as
/// `0:1`.
fn is_index(text: &str) -> bool {
    let is_index_character = |c: char| c.is_ascii_digit() || c == '-' || c == ':';
    !text.is_empty() && text.chars().all(is_index_character) || IndexRange::parse(text).is_some()
}

/// Returns whether an item requests a device that the host does not have yet, and that may arrive
/// later. `error` is the reason why no device of the host matches the item.
pub(super) fn is_awaited(item: &DeviceListItem, error: &RequestError, class: &ClassSpec) -> bool {
    let (_, text) = split_cdi_kind(item, class);
    let is_absent = match error {
        RequestError::UnknownDevice { .. } => !text.eq_ignore_ascii_case("all"),
        RequestError::UnknownPath { is_absent, .. } => *is_absent,
        // The name of a device that arrives later can have any characters.
        RequestError::MalformedItem(text) => !text.is_empty(),
        _ => false,
    };
    item.is_awaited_if_absent && is_absent
}

impl Selection {
    /// Returns the requested devices that the host does not have, if they may arrive later.
    ///
    /// # Errors
    /// Returns an error if there are more than `MAX_AWAITED_DEVICES` awaited devices. If `boathook
    /// follow` updates the devices of the class (`is_followed`), the items with `?` whose devices
    /// the host has count as well. The container awaits these devices again after they are
    /// unplugged.
    pub fn find_awaited_devices(
        &self,
        class: &DeviceClass,
        inventory: &Inventory,
    ) -> Result<Vec<AwaitedDevice>, RequestError> {
        let items = match self {
            Selection::Nothing | Selection::FilesOnly => return Ok(Vec::new()),
            Selection::All => return Ok(vec![AwaitedDevice::All]),
            Selection::Items(items) => items,
        };
        if !self.has_awaited_item() {
            return Ok(Vec::new());
        }
        let names = RequestNames::new(class, inventory);
        let mut awaited_devices = Vec::new();
        let mut count = 0;
        for item in items.iter().filter(|item| item.is_awaited_if_absent) {
            match names.resolve_item(item) {
                Ok(_) => count += 1,
                Err(error) if is_awaited(item, &error, &class.spec) => {
                    count += 1;
                    awaited_devices.push(AwaitedDevice::from_item(item, &class.spec));
                }
                Err(_) => {}
            }
        }
        // The number is limited, because `boathook follow` resolves each of these names whenever a
        // device comes or goes.
        if class.spec.is_followed && count > MAX_AWAITED_DEVICES
            || awaited_devices.len() > MAX_AWAITED_DEVICES
        {
            return Err(RequestError::TooManyAwaitedDevices { count });
        }
        Ok(awaited_devices)
    }

    /// Returns the items with the suffix `?` that name a single device of the host, each with the
    /// id of this device. When the device is unplugged, the container waits for it again.
    pub(crate) fn find_fulfilled_requests(
        &self,
        class: &DeviceClass,
        inventory: &Inventory,
    ) -> Vec<(AwaitedDevice, DeviceId)> {
        let Selection::Items(items) = self else {
            return Vec::new();
        };
        if !self.has_awaited_item() {
            return Vec::new();
        }
        let names = RequestNames::new(class, inventory);
        let items = items.iter().filter(|item| item.is_awaited_if_absent);
        let fulfilled_requests = items.filter_map(|item| {
            let Ok(ResolvedItem::Devices(positions)) = names.resolve_item(item) else {
                return None;
            };
            let mut devices = positions.select_devices(inventory);
            let (Some(device), None) = (devices.next(), devices.next()) else {
                return None;
            };
            let awaited_device = AwaitedDevice::from_item(item, &class.spec);
            Some((awaited_device, device.id.clone()))
        });
        fulfilled_requests.collect()
    }

    /// Returns whether an item of the request has the suffix `?`, so that its device may arrive
    /// later.
    pub(crate) fn has_awaited_item(&self) -> bool {
        matches!(self, Selection::Items(items) if items.iter().any(|item| item.is_awaited_if_absent))
    }

    /// Adds the suffix `?` to every name in the request, so that these devices may arrive later.
    /// Indices and ranges are not changed.
    pub(super) fn mark_names_as_awaited(&mut self, class: &ClassSpec) {
        let Selection::Items(items) = self else {
            return;
        };
        for item in items {
            let had_suffix = std::mem::replace(&mut item.is_awaited_if_absent, true);
            item.is_awaited_if_absent = had_suffix || check_awaited_name(item, class).is_ok();
        }
    }

    /// Returns an error if an item has the suffix `?`. `requester` is the party that cannot wait
    /// for a device, as text for the message.
    pub(super) fn check_no_awaited_item(
        &self,
        requester: &'static str,
    ) -> Result<(), RequestError> {
        let Selection::Items(items) = self else {
            return Ok(());
        };
        match items.iter().find(|item| item.is_awaited_if_absent) {
            Some(item) => Err(RequestError::CannotWait {
                item: item.to_name_text(),
                requester,
            }),
            None => Ok(()),
        }
    }
}
