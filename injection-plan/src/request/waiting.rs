//! Finds the awaited devices of a request: those that the host does not have, and that the container
//! gets when they arrive.

use std::path::PathBuf;

use device_class::DeviceClass;
use device_class::class::ClassSpec;
use device_class::discover::Inventory;
use device_class::name::IndexRange;
use serde::{Deserialize, Serialize};

use super::list::{DeviceList, Item, item_name};
use super::names::{Kind, RequestNames, split_kind};
use super::{RequestError, Selection};

/// The maximum number of devices of one class that a container may wait for by their names.
pub const MAX_AWAITED: usize = 64;

/// A device that a container waits for, as its request names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Awaited {
    /// The container waits for every device of the class that arrives after its start.
    All,
    /// The container waits for one device, which the host does not have.
    Device {
        /// The name as an item of a request. Its text form is that of attachment records and of
        /// `explain --json`.
        #[serde(with = "item_name")]
        name: Item,
        /// The path that the device's node has in the container, if the request chose one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<PathBuf>,
    },
}

impl Awaited {
    /// Returns the request for the device; `all` for every device.
    pub fn to_list(&self) -> DeviceList {
        DeviceList::from_item(match self {
            Awaited::All => Item::unquoted("all"),
            Awaited::Device { name, path: None } => name.clone(),
            Awaited::Device {
                name,
                path: Some(path),
            } => name.clone().at_path(path),
        })
    }

    /// Returns the request as text for messages.
    pub fn to_request(&self) -> String {
        self.to_list().to_string()
    }

    /// Returns the awaited name without its quotes, or the last component of a path. Returns `None`
    /// for every device of a class.
    pub fn last_component(&self) -> Option<&str> {
        match self {
            Awaited::All => None,
            Awaited::Device { name, .. } => name.text.rsplit('/').next(),
        }
    }
}

/// Refuses an index with the mark of an awaited device. An index does not identify a device, because
/// it means another device after one was plugged in or removed.
pub(super) fn check_mark(item: &Item, class: &ClassSpec) -> Result<(), RequestError> {
    let (_, text) = split_kind(item, class);
    if item.may_wait && !item.is_quoted && is_index(text) {
        return Err(RequestError::WaitsForIndex(text.to_owned()));
    }
    Ok(())
}

/// Returns whether a text is an index, a range, or the index of a part, such as `0:1`.
fn is_index(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_digit() || c == '-' || c == ':';
    !text.is_empty() && text.chars().all(is_part) || IndexRange::parse(text).is_some()
}

/// Returns whether an item waits for a device, if matching it with the devices of the host gave this
/// error.
pub(super) fn waits(item: &Item, error: &RequestError, class: &ClassSpec) -> bool {
    let (_, text) = split_kind(item, class);
    let is_absent = match error {
        RequestError::Unknown { .. } => !text.eq_ignore_ascii_case("all"),
        RequestError::UnknownPath { is_absent, .. } => *is_absent,
        // The names of hardware may have any characters.
        RequestError::Malformed(text) => !text.is_empty(),
        _ => false,
    };
    item.may_wait && is_absent
}

impl Selection {
    /// Returns the devices that the request waits for, because the host does not have them.
    ///
    /// # Errors
    /// Returns an error if there are too many.
    pub fn awaited(
        &self,
        class: &DeviceClass,
        inventory: &Inventory,
    ) -> Result<Vec<Awaited>, RequestError> {
        let items = match self {
            Selection::Nothing | Selection::FilesOnly => return Ok(Vec::new()),
            Selection::All => return Ok(vec![Awaited::All]),
            Selection::These(items) => items,
        };
        if !self.has_mark() {
            return Ok(Vec::new());
        }
        let names = RequestNames::new(class, inventory);
        let is_awaited = |item: &&Item| match names.resolve(item) {
            Err(error) => waits(item, &error, &class.spec),
            Ok(_) => false,
        };
        let awaited = items.iter().filter(is_awaited).map(|item| {
            let (kind, text) = split_kind(item, &class.spec);
            Awaited::Device {
                // Without quotes, a name that looks like an index would mean another device.
                name: match kind {
                    None | Some(Kind::AnyResource) => Item::quoted(text),
                    Some(Kind::Resource(_)) => item.without_suffix(),
                },
                path: item.container_path.clone(),
            }
        });
        let awaited: Vec<Awaited> = awaited.collect();
        match awaited.len() {
            0..=MAX_AWAITED => Ok(awaited),
            count => Err(RequestError::TooManyAwaited { count }),
        }
    }

    /// Returns whether an item of the request has the mark of a device that may arrive later.
    pub(crate) fn has_mark(&self) -> bool {
        matches!(self, Selection::These(items) if items.iter().any(|item| item.may_wait))
    }

    /// Adds the mark of an awaited device to each name in the request, so that the container waits for
    /// devices that the host does not have. Indices and ranges get no mark.
    pub(super) fn let_names_wait(&mut self, class: &ClassSpec) {
        let Selection::These(items) = self else {
            return;
        };
        for item in items {
            let was_marked = std::mem::replace(&mut item.may_wait, true);
            item.may_wait = was_marked || check_mark(item, class).is_ok();
        }
    }

    /// Returns an error if an item has the mark of an awaited device. `requester` describes in the
    /// message who cannot wait.
    pub(super) fn check_no_wait(&self, requester: &'static str) -> Result<(), RequestError> {
        let Selection::These(items) = self else {
            return Ok(());
        };
        match items.iter().find(|item| item.may_wait) {
            Some(item) => Err(RequestError::CannotWait {
                item: item.name_text(),
                requester,
            }),
            None => Ok(()),
        }
    }
}
