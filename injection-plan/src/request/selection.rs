//! Parses the device list of a request, and finds the requested devices on the host.

use device_class::collect_by_insertion;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use device_class::DeviceClass;
use device_class::class::ClassSpec;
use device_class::discover::{Device, Inventory, parse_dev_path};
use device_class::name::{DeviceId, IndexRange, is_reserved_name};

use super::RequestError;
use super::awaited_device;
use super::cdi_name::{CdiKind, split_cdi_kind};
use super::list::{DeviceList, DeviceListItem, split_list};
use super::names::{DevicePositions, RequestNames, ResolvedItem};
use super::node_paths;

/// The maximum length in bytes of a request. A longer request is refused. The limit bounds the time
/// that a request takes, and is enough for 1,000 ids of the maximum length.
pub const MAX_REQUEST_BYTES: usize = 64 << 10;

/// The parsed value of a request. It says which devices of a class are requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// The request is `void` or an empty list. The container gets neither devices nor files of the
    /// class.
    Nothing,
    /// The request is `none`. The container gets the class's files, but no device nodes.
    FilesOnly,
    /// The request is `all`. The container gets every healthy device.
    All,
    /// The request is a list of items. [`Selection::choose_devices`] finds their devices on a host.
    Items(Vec<DeviceListItem>),
}

impl Selection {
    /// Parses a request, which is a comma-separated list. Empty items are ignored. A reserved word
    /// (`all`, `none`, `void`) replaces the whole list. If the list has several reserved words,
    /// `void` wins, or else the first one.
    pub fn parse(text: &str, class: &ClassSpec) -> Result<Self, RequestError> {
        check_length(text)?;
        Self::from_items(split_list(text)?, class)
    }

    /// Parses the device list of a hook's argument or of a user's command.
    pub fn from_list(list: &DeviceList, class: &ClassSpec) -> Result<Self, RequestError> {
        check_length(list.as_str())?;
        Self::from_items(list.items().to_vec(), class)
    }

    fn from_items(items: Vec<DeviceListItem>, class: &ClassSpec) -> Result<Self, RequestError> {
        items
            .iter()
            .try_for_each(node_paths::check_container_path)?;
        items
            .iter()
            .try_for_each(|item| awaited_device::check_awaited_name(item, class))?;
        let words: Vec<&str> = items
            .iter()
            .filter_map(|item| find_reserved_word(item, class))
            .collect();
        let has_word = |word: &str| words.iter().any(|it| it.eq_ignore_ascii_case(word));
        if items.is_empty() || has_word("void") {
            return Ok(Selection::Nothing);
        }
        let mut items_with_path = items.iter().filter(|item| item.container_path.is_some());
        if let (Some(word), Some(item)) = (words.first(), items_with_path.next()) {
            return Err(node_paths::several_nodes_error(
                item,
                format!("in a list with `{word}`"),
            ));
        }
        let is_exclusion =
            |item: &&DeviceListItem| !item.is_quoted && item.text.starts_with(['-', '!', '^']);
        match words.first() {
            None => Ok(Selection::Items(items)),
            Some(first) if first.eq_ignore_ascii_case("all") => {
                match items.iter().find(is_exclusion) {
                    Some(item) => Err(RequestError::Exclusion(item.text.clone())),
                    None => Ok(Selection::All),
                }
            }
            // A list with `none` selects no devices, so an item such as `-1` cannot leave out a
            // device and is ignored.
            Some(_) => Ok(Selection::FilesOnly),
        }
    }

    /// Returns the host paths by which this request names devices, such as `/dev/ttyUSB0`.
    pub fn host_paths(&self, class: &ClassSpec) -> Vec<PathBuf> {
        let Selection::Items(items) = self else {
            return Vec::new();
        };
        let paths = items
            .iter()
            .map(|item| parse_dev_path(split_cdi_kind(item, class).1));
        paths.flatten().map(PathBuf::from).collect()
    }

    /// Returns whether a request selects nothing, whatever its class is: the list is empty or
    /// contains the word `void`.
    pub fn requests_nothing(text: &str) -> bool {
        let is_void =
            |item: &DeviceListItem| !item.is_quoted && item.text.eq_ignore_ascii_case("void");
        split_list(text).is_ok_and(|items| items.is_empty() || items.iter().any(is_void))
    }

    /// Returns the requested devices without duplicates, in the order of the inventory. Partitioned
    /// devices come first. The name of a partitioned device selects the device without its
    /// partitions.
    ///
    /// # Errors
    /// Returns an error if an item selects no device, unless the class ignores unknown items.
    pub fn choose_devices<'a>(
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
            Selection::Items(items) => items,
        };
        let spec = &class.spec.request;
        let ignores_unknown = spec.ignores_unknown_names(!devices.is_empty());
        let names = RequestNames::new(class, inventory);
        let mut chosen_devices = ChosenDevices::new(inventory);
        let mut ranges = Vec::new();
        for item in items {
            match names.resolve_item(item) {
                Ok(ResolvedItem::Devices(positions)) => chosen_devices.add(&positions),
                Ok(ResolvedItem::Range(range)) => ranges.push(range),
                Err(error) if awaited_device::is_awaited(item, &error, &class.spec) => {}
                Err(error) if ignores_unknown && error.is_unknown_device() => {}
                Err(error) => return Err(names.add_advice(item, error)),
            }
        }
        for IndexRange { first, last } in merge_ranges(ranges) {
            // A range may have 2^32 indices, so the loop needs a limit. If the class ignores
            // unknown indices, the range ends at the number of devices. Otherwise the first unknown
            // index is an error and ends the loop.
            let device_count = u32::try_from(devices.len()).unwrap_or(u32::MAX);
            let last_index = if ignores_unknown {
                last.min(device_count)
            } else {
                last
            };
            for index in first..=last_index {
                match names.find_by_index(index) {
                    Some(positions) => chosen_devices.add(&positions),
                    None if ignores_unknown => {}
                    None => return Err(names.unknown_device_error(&index.to_string())),
                }
            }
        }
        Ok(chosen_devices.into_devices())
    }

    /// Returns the aliases and paths by which the request names single devices, by device id. Such
    /// a name identifies the device even if its id changes. Ids, indices, ranges and `all` are not
    /// returned, because they do not identify a device in this way.
    pub fn find_stable_names(
        &self,
        class: &DeviceClass,
        inventory: &Inventory,
    ) -> BTreeMap<DeviceId, DeviceListItem> {
        let Selection::Items(items) = self else {
            return BTreeMap::new();
        };
        let names = RequestNames::new(class, inventory);
        let mut names_by_device = BTreeMap::new();
        for item in items {
            if let Some(device) = names.find_named_device(item) {
                names_by_device.insert(device.id.clone(), item.without_suffix());
            }
        }
        names_by_device
    }

    /// Returns the items of the request that select neither a device of the host nor an awaited
    /// device, as the request writes them.
    pub fn find_unknown_items(&self, class: &DeviceClass, inventory: &Inventory) -> Vec<String> {
        let Selection::Items(items) = self else {
            return Vec::new();
        };
        let names = RequestNames::new(class, inventory);
        let unknown_items = items.iter().filter(|item| match names.resolve_item(item) {
            Err(error) => !awaited_device::is_awaited(item, &error, &class.spec),
            Ok(_) => false,
        });
        unknown_items.map(DeviceListItem::to_name_text).collect()
    }
}

fn check_length(text: &str) -> Result<(), RequestError> {
    if text.len() > MAX_REQUEST_BYTES {
        return Err(RequestError::TooLong { length: text.len() });
    }
    Ok(())
}

/// Returns the reserved word of an item: `all`, `none` or `void`. Returns `None` if the word
/// follows the CDI kind of a single resource, as in `vendor.com/npu=all`. Such a word applies only
/// to this resource, and not to the whole list.
fn find_reserved_word<'a>(item: &'a DeviceListItem, class: &ClassSpec) -> Option<&'a str> {
    match split_cdi_kind(item, class) {
        (Some(CdiKind::Resource(_)), _) => None,
        (_, text) => (!item.is_quoted && is_reserved_name(text)).then_some(text),
    }
}

struct ChosenDevices<'a> {
    inventory: &'a Inventory,
    /// Whether the request selects the device, for each device of the inventory.
    is_device_chosen: Vec<bool>,
    /// Whether the request selects the device, for each partitioned device of the inventory.
    is_partitioned_device_chosen: Vec<bool>,
}

impl<'a> ChosenDevices<'a> {
    fn new(inventory: &'a Inventory) -> Self {
        ChosenDevices {
            inventory,
            is_device_chosen: vec![false; inventory.devices.len()],
            is_partitioned_device_chosen: vec![false; inventory.partitioned_devices.len()],
        }
    }

    fn add(&mut self, positions: &DevicePositions) {
        for position in &positions.devices {
            self.is_device_chosen[*position] = true;
        }
        for position in &positions.partitioned_devices {
            self.is_partitioned_device_chosen[*position] = true;
        }
    }

    fn into_devices(self) -> Vec<&'a Device> {
        let partitioned_devices = self
            .inventory
            .partitioned_devices
            .iter()
            .zip(self.is_partitioned_device_chosen);
        let devices = self.inventory.devices.iter().zip(self.is_device_chosen);
        let chosen_devices = partitioned_devices
            .chain(devices)
            .filter(|(_, is_chosen)| *is_chosen);
        chosen_devices.map(|(device, _)| device).collect()
    }
}

/// Merges overlapping ranges. The result is sorted and has the same indices as `ranges`.
fn merge_ranges(ranges: Vec<IndexRange>) -> Vec<IndexRange> {
    let ranges: BTreeSet<IndexRange> = collect_by_insertion(ranges);
    let mut merged_ranges: Vec<IndexRange> = Vec::new();
    for range in ranges {
        match merged_ranges.last_mut() {
            Some(previous) if range.first <= previous.last => {
                previous.last = previous.last.max(range.last);
            }
            _ => merged_ranges.push(range),
        }
    }
    merged_ranges
}
