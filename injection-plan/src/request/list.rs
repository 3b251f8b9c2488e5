//! Splits the text of a request into items. The items are separated by commas and may be quoted. An
//! item has the name of a device, which can be followed by the path of the device's node in the
//! container.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use device_class::name::IndexRange;

use super::RequestError;

/// The separator between the name of a device and the path of its node in the container. It
/// includes `/dev/`, the beginning of the path, because a colon alone can be part of a name.
const CONTAINER_PATH_SEPARATOR: &str = ":/dev/";

/// The suffix of an item whose device may arrive after the container has started.
const AWAITED_SUFFIX: char = '?';

/// One item of a request, without its quotes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceListItem {
    /// The name, path, reserved word or range. It does not include the path in the container and
    /// the suffix `?`.
    pub text: String,
    /// Whether the text was quoted. A quoted text is always a name or a path, and never a reserved
    /// word such as `all`, a range or a CDI name.
    pub is_quoted: bool,
    /// The path of the device's node in the container, such as `/dev/x` in the item `NAME:/dev/x`.
    /// `None` means that the node has the default path, which the class file sets.
    pub container_path: Option<PathBuf>,
    /// Whether the item has the suffix `?`. If so, the container can start without the device, and
    /// gets the device when it arrives on the host.
    pub is_awaited_if_absent: bool,
}

impl DeviceListItem {
    /// Returns the item for a text without quotes: a name, a reserved word or a range.
    pub(crate) fn from_unquoted_text(text: &str) -> Self {
        DeviceListItem {
            is_quoted: false,
            ..Self::from_quoted_name(text)
        }
    }

    /// Returns the item for a name in quotes. Such a name is never a reserved word or a range.
    pub fn from_quoted_name(name: &str) -> Self {
        DeviceListItem {
            text: name.to_owned(),
            is_quoted: true,
            container_path: None,
            is_awaited_if_absent: false,
        }
    }

    /// Returns the item with `path` as the path of the device's node in the container.
    #[must_use]
    pub fn with_container_path(self, path: &Path) -> Self {
        DeviceListItem {
            container_path: Some(path.to_owned()),
            ..self
        }
    }

    /// Returns the item without its path in the container and without the suffix `?`.
    #[must_use]
    pub fn without_suffix(&self) -> Self {
        DeviceListItem {
            container_path: None,
            is_awaited_if_absent: false,
            ..self.clone()
        }
    }

    /// Parses a device list that has a single item. Returns `None` if the list has no item or
    /// several items.
    pub fn parse(text: &str) -> Option<Self> {
        match split_list(text).ok()?.as_slice() {
            [item] => Some(item.clone()),
            _ => None,
        }
    }

    /// Returns the item as a request contains it: with quotes, path and suffix.
    pub fn to_text(&self) -> String {
        let mut text = self.to_name_text();
        if let Some(path) = &self.container_path {
            text.push(':');
            text.push_str(&path.to_string_lossy());
        }
        if self.is_awaited_if_absent {
            text.push(AWAITED_SUFFIX);
        }
        text
    }

    /// Returns the name as a request contains it: with its quotes, but without the path in the
    /// container and without the suffix `?`.
    pub fn to_name_text(&self) -> String {
        if self.is_quoted {
            quote(&self.text)
        } else {
            self.text.clone()
        }
    }

    /// Returns the item for a name and the text after the name. This `suffix` can have a path in
    /// the container and a `?`. Returns `None` if `suffix` has anything else.
    fn from_name_and_suffix(text: String, is_quoted: bool, suffix: &str) -> Option<Self> {
        let (path, is_awaited_if_absent) = match suffix.strip_suffix(AWAITED_SUFFIX) {
            Some(path) => (path.trim_end(), true),
            None => (suffix, false),
        };
        let container_path = match path {
            "" => None,
            path if path.starts_with(CONTAINER_PATH_SEPARATOR) => Some(PathBuf::from(&path[1..])),
            _ => return None,
        };
        Some(DeviceListItem {
            text,
            is_quoted,
            container_path,
            is_awaited_if_absent,
        })
    }
}

/// The list of devices in a request or in a hook's argument: its text as it was written, and its
/// items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceList {
    text: String,
    items: Vec<DeviceListItem>,
}

impl DeviceList {
    pub fn parse(text: &str) -> Result<Self, RequestError> {
        Ok(DeviceList {
            items: split_list(text)?,
            text: text.to_owned(),
        })
    }

    /// Returns a list with one item.
    pub fn from_item(item: DeviceListItem) -> Self {
        Self::from_items(vec![item])
    }

    pub fn from_items(items: Vec<DeviceListItem>) -> Self {
        let texts: Vec<String> = items.iter().map(DeviceListItem::to_text).collect();
        DeviceList {
            text: texts.join(","),
            items,
        }
    }

    /// Returns a list with the items of all `lists`, without duplicates.
    pub fn concatenate<'l>(lists: impl IntoIterator<Item = &'l Self>) -> Self {
        let (mut texts, mut items, mut unique_items) = (Vec::new(), Vec::new(), BTreeSet::new());
        for list in lists {
            texts.push(list.text.as_str());
            items.extend(
                list.items
                    .iter()
                    .filter(|item| unique_items.insert(*item))
                    .cloned(),
            );
        }
        DeviceList {
            text: texts.join(","),
            items,
        }
    }

    pub fn items(&self) -> &[DeviceListItem] {
        &self.items
    }

    /// Returns the list as it was written in the request.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for DeviceList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns a name in quotes, so that [`split_list`] accepts it as one item.
pub fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Serializes a [`DeviceListItem`] as a string, for serde's attribute `with`. The path and the
/// suffix of the item are not serialized.
pub mod item_name {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    use super::DeviceListItem;

    pub fn serialize<S: Serializer>(
        name: &DeviceListItem,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&name.to_name_text())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<DeviceListItem, D::Error> {
        let text = String::deserialize(deserializer)?;
        let error = || Error::custom(format_args!("{text:?} is not the name of one device"));
        DeviceListItem::parse(&text).ok_or_else(error)
    }
}

/// Splits a list into its items, and returns each item once. Empty items, and blanks around items,
/// are ignored.
///
/// An item that begins with `"` ends at the next `"`. In it, `""` means one quote, as in
/// comma-separated values (RFC 4180). After a name, `:/dev/PATH` is the path of the node in the
/// container. A `?` at the end of an item means that the device may arrive later.
pub fn split_list(list: &str) -> Result<Vec<DeviceListItem>, RequestError> {
    let (mut items, mut item_texts) = (Vec::new(), BTreeSet::new());
    let mut remaining_text = list.trim_start();
    while !remaining_text.is_empty() {
        let text_from_item = remaining_text;
        let item = if let Some(text_after_quote) = remaining_text.strip_prefix('"') {
            let unquoted_error = || RequestError::UnfinishedQuotes(remaining_text.to_owned());
            let (text, following_text) =
                split_quoted(text_after_quote).ok_or_else(unquoted_error)?;
            let (suffix, following_text) = following_text
                .split_once(',')
                .unwrap_or((following_text, ""));
            remaining_text = following_text;
            DeviceListItem::from_name_and_suffix(text, true, suffix.trim())
                .ok_or_else(unquoted_error)?
        } else {
            let (text, following_text) = remaining_text
                .split_once(',')
                .unwrap_or((remaining_text, ""));
            remaining_text = following_text;
            let text = text.trim_end();
            let length_without_suffix = text.strip_suffix(AWAITED_SUFFIX).unwrap_or(text).len();
            let name_end = text
                .find(CONTAINER_PATH_SEPARATOR)
                .unwrap_or(length_without_suffix);
            let (name, suffix) = text.split_at(name_end);
            DeviceListItem::from_name_and_suffix(name.trim_end().to_owned(), false, suffix)
                .unwrap_or_else(|| DeviceListItem {
                    text: text.to_owned(),
                    is_quoted: false,
                    container_path: None,
                    is_awaited_if_absent: false,
                })
        };
        let untrimmed_text = &text_from_item[..text_from_item.len() - remaining_text.len()];
        let item_text = untrimmed_text.trim_end_matches([',', ' ']);
        remaining_text = remaining_text.trim_start();
        let is_empty = item.text.is_empty() && !item.is_quoted && item.container_path.is_none();
        if !is_empty && item_texts.insert(item_text) {
            items.push(item);
        }
    }
    Ok(items)
}

/// Splits the text after an opening quote at the closing quote. Returns the quoted text and the
/// remaining text, or `None` if there is no closing quote.
fn split_quoted(text_after_quote: &str) -> Option<(String, &str)> {
    let (mut text, mut remaining_text) = (String::new(), text_after_quote);
    loop {
        let (unquoted_text, following_text) = remaining_text.split_once('"')?;
        text.push_str(unquoted_text);
        match following_text.strip_prefix('"') {
            None => return Some((text, following_text)),
            Some(following_text) => {
                text.push('"');
                remaining_text = following_text;
            }
        }
    }
}

/// Returns a name as a list item, with quotes if [`split_list`] would otherwise split or change it.
/// A name that looks like a range of indices is quoted as well. Otherwise it would stand for the
/// devices with these indices once its own device is unplugged.
pub(super) fn quote_if_needed(name: &str) -> Cow<'_, str> {
    let needs_quotes = name.contains(',')
        || name.starts_with('"')
        || name.trim() != name
        || name.contains(CONTAINER_PATH_SEPARATOR)
        || name.ends_with(AWAITED_SUFFIX)
        || looks_like_range(name);
    if needs_quotes {
        Cow::Owned(quote(name))
    } else {
        Cow::Borrowed(name)
    }
}

/// Returns whether a name could be parsed as a range of indices. The range may be malformed.
fn looks_like_range(name: &str) -> bool {
    name.contains('-') && IndexRange::parse(name).is_some()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn items_are_split_at_commas_outside_quotes() {
        for (list, expected) in [
            ("", vec![]),
            (" , ,", vec![]),
            ("a, b c ,,a", vec![("a", false), ("b c", false)]),
            ("7\" disk", vec![("7\" disk", false)]),
            ("\"a, b\" , c", vec![("a, b", true), ("c", false)]),
            ("c,\" a \"", vec![("c", false), (" a ", true)]),
            ("\"\"\"\"", vec![("\"", true)]),
            ("\"\",", vec![("", true)]),
            ("\"a\" ,b", vec![("a", true), ("b", false)]),
            ("a:/b", vec![("a:/b", false)]),
            ("a,\"a\"", vec![("a", false), ("a", true)]),
        ] {
            let items = split_list(list).unwrap();
            let items: Vec<_> = items
                .iter()
                .map(|item| (item.text.as_str(), item.is_quoted))
                .collect();
            assert_eq!(items, expected, "{list}");
        }
        for (item, name, path) in [
            ("a:/dev/b", "a", "/dev/b"),
            ("a :/dev/b c", "a", "/dev/b c"),
            ("0000:01:00.0:/dev/b", "0000:01:00.0", "/dev/b"),
            ("\"a,b\":/dev/b", "a,b", "/dev/b"),
            ("\"a:/dev/c\" :/dev/b", "a:/dev/c", "/dev/b"),
            ("/dev/a:/dev/b:/dev/c", "/dev/a", "/dev/b:/dev/c"),
            ("a:/dev/b?", "a", "/dev/b"),
            ("\"a?\":/dev/b ?", "a?", "/dev/b"),
        ] {
            let [read] = &split_list(item).unwrap()[..] else {
                panic!("{item}");
            };
            assert_eq!(
                (&*read.text, read.container_path.as_deref()),
                (name, Some(path.as_ref()))
            );
        }
        for (item, name, is_awaited_if_absent) in [
            ("a?", "a", true),
            ("a b ?", "a b", true),
            ("a??", "a?", true),
            ("a?b", "a?b", false),
            ("\"a?\"", "a?", false),
            ("\"a\"?", "a", true),
        ] {
            let [read] = &split_list(item).unwrap()[..] else {
                panic!("{item}");
            };
            assert_eq!(
                (&*read.text, read.is_awaited_if_absent),
                (name, is_awaited_if_absent)
            );
        }
        for list in [
            "\"",
            "a,\"b",
            "\"a\"b",
            "\"a\":/b",
            "\"a\" \"b\"",
            "\"a\"\"",
        ] {
            let error = split_list(list).unwrap_err();
            assert!(matches!(error, RequestError::UnfinishedQuotes(_)), "{list}");
        }
    }

    proptest! {
        #[test]
        fn lists_of_several_grants_are_one_list(
            texts in prop::collection::vec("[a-c, =?]{0,6}|\"a,b\"|c:/dev/x", 1..4)
        ) {
            let lists: Vec<DeviceList> =
                texts.iter().map(|text| DeviceList::parse(text).unwrap()).collect();
            let together = DeviceList::concatenate(&lists);
            let mut expected = Vec::new();
            for item in split_list(together.as_str()).unwrap() {
                if !expected.contains(&item) {
                    expected.push(item);
                }
            }
            let mut items = Vec::new();
            for item in together.items() {
                if !items.contains(item) {
                    items.push(item.clone());
                }
            }
            prop_assert_eq!(items, expected);
        }

        #[test]
        fn an_item_is_read_as_it_was_written(name in "[a, \"é=?]{1,5}", path in "/dev/[a-c]{1,3}") {
            let named = DeviceListItem::from_quoted_name(&name);
            for item in [named.clone(), named.with_container_path(Path::new(&path))] {
                prop_assert_eq!(DeviceListItem::parse(&item.to_text()), Some(item));
            }
        }

        #[test]
        fn a_name_is_one_item(names in prop::collection::vec("[a, \"é=?]{1,5}|a:/dev/[b\",]", 1..4)) {
            let items: Vec<_> = names.iter().map(|name| quote_if_needed(name)).collect();
            let split = split_list(&items.join(" ,")).unwrap();
            let texts: Vec<String> = split.into_iter().map(|item| item.text).collect();
            for name in &names {
                prop_assert!(texts.contains(name), "{texts:?}");
            }
            prop_assert!(texts.iter().all(|text| names.contains(text)), "{texts:?}");
        }
    }
}
