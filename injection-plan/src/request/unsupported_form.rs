//! Recognizes items that a request does not accept, although other programs do. They are patterns
//! such as `/dev/ttyUSB*`, and product ids such as `1a86:7523`, which `lsusb` and `lspci -n` print.

use device_class::DeviceClass;
use device_class::discover::{Device, Inventory};

use super::cdi_name::split_cdi_kind;
use super::list::DeviceListItem;
use super::names::RequestNames;
use super::{RequestError, Selection};

/// The maximum number of devices that a message about a pattern lists.
const MAX_LISTED_DEVICES: usize = 8;

/// The maximum length in bytes of a pattern whose devices are looked up. No path of a device is
/// longer, and the time that the look-up takes grows with the length.
const MAX_PATTERN_BYTES: usize = 256;

impl RequestNames<'_> {
    /// Returns an error with advice if the item is a pattern or a product id, which a request does
    /// not accept. Returns `None` for any other item. An item with quotes is always a name, and an
    /// item with a blank is probably the name of a model.
    pub(super) fn advise_about_unsupported_form(
        &self,
        item: &DeviceListItem,
    ) -> Option<RequestError> {
        let (_, text) = split_cdi_kind(item, &self.class.spec);
        if item.is_quoted || text.contains(char::is_whitespace) {
            return None;
        }
        let has_character_set = text
            .split_once('[')
            .is_some_and(|(_, rest)| rest.contains(']'));
        let advice = if text.contains('*') || has_character_set {
            self.advise_about_pattern(text)
        } else if is_product_id(text) {
            let class = &self.class.name;
            format!(
                "has the form of a vendor and a product, which all devices of one model share; write \
                 the id, alias or path of a device, which `boathook list {class}` shows"
            )
        } else {
            return None;
        };
        Some(RequestError::UnsupportedForm {
            item: text.to_owned(),
            advice,
        })
    }

    fn advise_about_pattern(&self, pattern: &str) -> String {
        let devices = self.devices();
        let ids = devices
            .iter()
            .filter(|_| pattern.len() <= MAX_PATTERN_BYTES)
            .filter(|device| has_matching_name(device, pattern))
            .map(|device| device.id.as_str());
        let ids: Vec<&str> = ids.collect();
        let list = match ids.as_slice() {
            [] => format!("the names that `boathook list {}` shows", self.class.name),
            ids if ids.len() > MAX_LISTED_DEVICES => {
                let listed_ids = ids[..MAX_LISTED_DEVICES].join(",");
                let omitted_count = ids.len() - MAX_LISTED_DEVICES;
                format!("{listed_ids} and {omitted_count} more")
            }
            ids => ids.join(","),
        };
        let all = if !ids.is_empty() && ids.len() == devices.len() {
            "`all` or "
        } else {
            ""
        };
        format!("is a pattern, which a request cannot have; write {all}{list}")
    }
}

impl Selection {
    /// Returns a message for each item with the suffix `?` for which the container would wait in
    /// vain. The item is a pattern or a product id, and no device can have such a name.
    pub(crate) fn describe_unmatchable_items(
        &self,
        class: &DeviceClass,
        inventory: &Inventory,
    ) -> Vec<String> {
        let Selection::Items(items) = self else {
            return Vec::new();
        };
        let names = RequestNames::new(class, inventory);
        let awaited_items = items.iter().filter(|item| item.is_awaited_if_absent);
        let absent_items = awaited_items.filter(|item| names.resolve_item(item).is_err());
        let errors = absent_items.filter_map(|item| names.advise_about_unsupported_form(item));
        errors
            .map(|error| format!("no device that comes later can have this name: {error}"))
            .collect()
    }
}

/// Returns whether the pattern matches an id, an alias, or the path or file name of a node or of a
/// link to a node.
fn has_matching_name(device: &Device, pattern: &str) -> bool {
    let matches = |name: &str| matches_pattern(pattern, name);
    let nodes = device.nodes.iter();
    let mut paths = nodes.flat_map(|node| {
        node.links
            .iter()
            .chain([&node.host_path, &node.container_path])
    });
    let mut aliases = device.aliases.iter();
    matches(device.id.as_str())
        || aliases.any(|alias| matches(alias))
        || paths.any(|path| {
            let file_name = path.file_name().and_then(|name| name.to_str());
            path.to_str().is_some_and(matches) || file_name.is_some_and(matches)
        })
}

/// Returns whether a text matches a pattern in which `*` stands for any characters but `/`.
fn matches_pattern(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut pattern_position, mut text_position) = (0, 0);
    // The position of the last `*` in the pattern, and the end of the text that this `*` stands
    // for. After a mismatch, only this `*` is tried again with a longer text. If all of them were,
    // each further `*` would multiply the number of attempts.
    let mut last_star = None;
    while let Some(text_byte) = text.get(text_position) {
        match (pattern.get(pattern_position), last_star) {
            (Some(b'*'), _) => {
                last_star = Some((pattern_position, text_position));
                pattern_position += 1;
            }
            (Some(pattern_byte), _) if pattern_byte == text_byte => {
                pattern_position += 1;
                text_position += 1;
            }
            (_, Some((star_position, end))) if text.get(end) != Some(&b'/') => {
                last_star = Some((star_position, end + 1));
                pattern_position = star_position + 1;
                text_position = end + 1;
            }
            _ => return false,
        }
    }
    pattern
        .iter()
        .skip(pattern_position)
        .all(|byte| *byte == b'*')
}

/// Returns whether a text has the form of a vendor and a product: two numbers of four hexadecimal
/// digits, with a colon between them.
fn is_product_id(text: &str) -> bool {
    let is_number = |text: &str| text.len() == 4 && text.bytes().all(|b| b.is_ascii_hexdigit());
    text.split_once(':')
        .is_some_and(|(vendor, product)| is_number(vendor) && is_number(product))
}
