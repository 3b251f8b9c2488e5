//! Parses the device list of a request, and matches it with the devices of the host.

use device_class::inserted;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use device_class::DeviceClass;
use device_class::class::ClassSpec;
use device_class::discover::{Device, Inventory, as_path};
use device_class::name::{DeviceId, IndexRange, is_reserved_name};

use super::RequestError;
use super::list::{DeviceList, Item, split_list};
use super::names::{Kind, Meaning, MeantDevices, RequestNames, split_kind};
use super::places;
use super::waiting;

/// The maximum length in bytes of a request. A longer one is refused. The limit bounds the time that
/// a request can take, and is enough for 1,000 ids of the maximum length.
pub const MAX_REQUEST: usize = 64 << 10;

/// The parsed value of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// The request is `void` or an empty list. The container gets nothing of the class.
    Nothing,
    /// The request is `none`. The container gets the class's files, but neither devices nor
    /// control nodes.
    FilesOnly,
    /// The request is `all`. The container gets every healthy device.
    All,
    /// The request is a list of items. Which devices an item means depends on the devices of the
    /// host.
    These(Vec<Item>),
}

impl Selection {
    /// Parses a request: a comma-separated list, whose empty items are ignored. A reserved
    /// word anywhere in the list replaces the whole list: `void` if the list has it, and
    /// otherwise the first one of `none` and `all`.
    pub fn parse(text: &str, class: &ClassSpec) -> Result<Self, RequestError> {
        check_length(text)?;
        Self::from_items(split_list(text)?, class)
    }

    /// Parses the list of a grant, or of a user's command.
    pub fn from_list(list: &DeviceList, class: &ClassSpec) -> Result<Self, RequestError> {
        check_length(list.as_str())?;
        Self::from_items(list.items().to_vec(), class)
    }

    fn from_items(items: Vec<Item>, class: &ClassSpec) -> Result<Self, RequestError> {
        items.iter().try_for_each(places::check_path)?;
        items
            .iter()
            .try_for_each(|item| waiting::check_mark(item, class))?;
        let words: Vec<&str> = items
            .iter()
            .filter_map(|item| reserved_word(item, class))
            .collect();
        let has = |wanted: &str| words.iter().any(|it| it.eq_ignore_ascii_case(wanted));
        if items.is_empty() || has("void") {
            return Ok(Selection::Nothing);
        }
        let mut placed = items.iter().filter(|item| item.container_path.is_some());
        if let (Some(word), Some(item)) = (words.first(), placed.next()) {
            return Err(places::several(item, format!("in a list with `{word}`")));
        }
        Ok(match words.first() {
            None => Selection::These(items),
            Some(first) if first.eq_ignore_ascii_case("all") => Selection::All,
            Some(_) => Selection::FilesOnly,
        })
    }

    /// Returns the paths of the host that the selection has as names of devices.
    pub fn paths(&self, class: &ClassSpec) -> Vec<PathBuf> {
        let Selection::These(items) = self else {
            return Vec::new();
        };
        let paths = items.iter().map(|item| as_path(split_kind(item, class).1));
        paths.flatten().map(PathBuf::from).collect()
    }

    /// Returns whether a text requests nothing of any class: it is an empty list, or it has
    /// the word `void`.
    pub fn is_nothing(text: &str) -> bool {
        let is_void = |item: &Item| !item.is_quoted && item.text.eq_ignore_ascii_case("void");
        split_list(text).is_ok_and(|items| items.is_empty() || items.iter().any(is_void))
    }

    /// Returns the requested devices, each once. Divided devices come first, then the others
    /// in the order of the inventory. The name of a device that is divided into parts means
    /// the device without its parts.
    ///
    /// # Errors
    /// Returns an error if an item means no device, unless the class ignores unknown items.
    pub fn choose<'a>(
        &self,
        class: &DeviceClass,
        inventory: &'a Inventory,
    ) -> Result<Vec<&'a Device>, RequestError> {
        let devices = inventory.devices.as_slice();
        let items = match self {
            Selection::Nothing | Selection::FilesOnly => return Ok(Vec::new()),
            Selection::All => {
                return Ok(devices.iter().filter(|d| d.health.is_healthy()).collect());
            }
            Selection::These(items) => items,
        };
        let spec = &class.spec.request;
        let ignores_unknown = spec.leaves_out_unknown(!devices.is_empty());
        let names = RequestNames::new(class, inventory);
        let mut chosen = ChosenDevices::new(inventory);
        let mut ranges = Vec::new();
        for item in items {
            match names.resolve(item) {
                Ok(Meaning::Devices(meant)) => chosen.add(&meant),
                Ok(Meaning::Range(range)) => ranges.push(range),
                Err(error) if waiting::waits(item, &error, &class.spec) => {}
                Err(error) if ignores_unknown && error.is_of_unknown() => {}
                Err(error) => return Err(error),
            }
        }
        for IndexRange { first, last } in merge_ranges(ranges) {
            // A range may have 2^32 indices. If the class ignores unknown indices, the range is cut at
            // the number of devices. Otherwise the loop ends at the first index that no device has.
            let most = u32::try_from(devices.len()).unwrap_or(u32::MAX);
            let last = if ignores_unknown {
                last.min(most)
            } else {
                last
            };
            for index in first..=last {
                match names.find_index(index) {
                    Some(meant) => chosen.add(&meant),
                    None if ignores_unknown => {}
                    None => return Err(names.unknown_name(&index.to_string())),
                }
            }
        }
        Ok(chosen.into_devices())
    }

    /// Returns the aliases and paths by which the request names single devices, by device id. By such
    /// a name a device is found again after its id has changed. Ids, indices, ranges and `all` are
    /// left out.
    pub fn names_of_devices(
        &self,
        class: &DeviceClass,
        inventory: &Inventory,
    ) -> BTreeMap<DeviceId, Item> {
        let Selection::These(items) = self else {
            return BTreeMap::new();
        };
        let names = RequestNames::new(class, inventory);
        let mut found = BTreeMap::new();
        for item in items {
            if let Some(device) = names.find_named_device(item) {
                found.insert(device.id.clone(), item.without_suffix());
            }
        }
        found
    }

    /// Returns the items of the request that mean no device, and that do not wait for one.
    pub fn unknown_items<'s>(&'s self, class: &DeviceClass, inventory: &Inventory) -> Vec<&'s str> {
        let Selection::These(items) = self else {
            return Vec::new();
        };
        let names = RequestNames::new(class, inventory);
        let unknown = items.iter().filter(|item| match names.resolve(item) {
            Err(error) => !waiting::waits(item, &error, &class.spec),
            Ok(_) => false,
        });
        unknown.map(|item| item.text.as_str()).collect()
    }
}

fn check_length(text: &str) -> Result<(), RequestError> {
    if text.len() > MAX_REQUEST {
        return Err(RequestError::TooLong { length: text.len() });
    }
    Ok(())
}

/// Returns the reserved word (`all`, `none`, `void`) that an item consists of. Returns `None` if the
/// word follows the kind of a single resource, because it then applies to that resource and not to the
/// whole list.
fn reserved_word<'a>(item: &'a Item, class: &ClassSpec) -> Option<&'a str> {
    match split_kind(item, class) {
        (Some(Kind::Resource(_)), _) => None,
        (_, text) => (!item.is_quoted && is_reserved_name(text)).then_some(text),
    }
}

/// The devices of an inventory that were chosen so far, with one flag for each device.
struct ChosenDevices<'a> {
    inventory: &'a Inventory,
    devices: Vec<bool>,
    divided: Vec<bool>,
}

impl<'a> ChosenDevices<'a> {
    fn new(inventory: &'a Inventory) -> Self {
        ChosenDevices {
            inventory,
            devices: vec![false; inventory.devices.len()],
            divided: vec![false; inventory.divided.len()],
        }
    }

    fn add(&mut self, meant: &MeantDevices) {
        for position in &meant.devices {
            self.devices[*position] = true;
        }
        for position in &meant.divided {
            self.divided[*position] = true;
        }
    }

    fn into_devices(self) -> Vec<&'a Device> {
        let divided = self.inventory.divided.iter().zip(self.divided);
        let devices = self.inventory.devices.iter().zip(self.devices);
        let chosen = divided.chain(devices).filter(|(_, is_chosen)| *is_chosen);
        chosen.map(|(device, _)| device).collect()
    }
}

/// Returns sorted ranges that do not overlap and have the same numbers as `ranges`.
fn merge_ranges(ranges: Vec<IndexRange>) -> Vec<IndexRange> {
    let ranges: BTreeSet<IndexRange> = inserted(ranges);
    let mut merged: Vec<IndexRange> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(before) if range.first <= before.last => before.last = before.last.max(range.last),
            _ => merged.push(range),
        }
    }
    merged
}
