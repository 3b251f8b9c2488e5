//! Devices of a request that the host does not have yet, and that the container gets when they
//! come.

use std::path::PathBuf;

use device_class::DeviceClass;
use device_class::class::ClassSpec;
use device_class::discover::Inventory;
use device_class::name::IndexRange;
use serde::{Deserialize, Serialize};

use super::list::{DeviceList, Item, item_name};
use super::names::{Kind, RequestNames, split_kind};
use super::{RequestError, Selection};

/// The most devices of one class that a container may wait for by their names.
pub const MAX_AWAITED: usize = 64;

/// A device that a container waits for, as its request names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Awaited {
    /// Every device of the class that comes after the start of the container.
    All,
    /// A device that the host does not have.
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
}

/// Checks that an item that may wait is no index: when a device comes or goes, an index means
/// another device.
pub(super) fn check_mark(item: &Item, class: &ClassSpec) -> Result<(), RequestError> {
    let (_, text) = split_kind(item, class);
    match item.may_wait && !item.is_quoted && is_index(text) {
        true => Err(RequestError::WaitsForIndex(text.to_owned())),
        false => Ok(()),
    }
}

/// Whether a text is an index, a range, or the number of a part, such as `0:1`.
fn is_index(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_digit() || c == '-' || c == ':';
    !text.is_empty() && text.chars().all(is_part) || IndexRange::parse(text).is_some()
}

/// Returns whether an item that means no device, with this error, waits for one.
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

    /// Returns whether the request has a device that may come later.
    pub(crate) fn has_mark(&self) -> bool {
        matches!(self, Selection::These(items) if items.iter().any(|item| item.may_wait))
    }

    /// Lets the container wait for each device that the request names, as with the mark at each
    /// name. Indices and ranges are left as they are.
    pub(super) fn let_names_wait(&mut self, class: &ClassSpec) {
        let Selection::These(items) = self else {
            return;
        };
        for item in items {
            let was_marked = std::mem::replace(&mut item.may_wait, true);
            item.may_wait = was_marked || check_mark(item, class).is_ok();
        }
    }

    /// Returns an error if an item may come later. `whose` is the party that would have to wait,
    /// as text.
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
