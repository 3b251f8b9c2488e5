//! Splits the text of a request into items. Items are separated by commas and may be
//! quoted. After a name, an item may have a path in the container.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use device_class::name::IndexRange;

use super::RequestError;

/// The separator between the name of a device and the path of its node in the container, together
/// with the beginning of that path.
const CONTAINER_PATH: &str = ":/dev/";

/// The mark at the end of an item whose device may arrive after the start of the container.
const MAY_WAIT: char = '?';

/// One item of a request, without its quotes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Item {
    /// The name, path, word or range, without the path in the container and without the mark.
    pub text: String,
    /// Whether the text was quoted. A quoted text is a name or a path; it is not read as a
    /// word such as `all`, as a range or as a CDI name.
    pub is_quoted: bool,
    /// The path that the device's node has in the container: `B` of `NAME:B`. It begins with
    /// `/dev/`. `None` means that the node has its usual path.
    pub container_path: Option<PathBuf>,
    /// Whether the item has the mark `?`: the container starts even if the host does not have the
    /// device, and gets the device when it arrives.
    pub may_wait: bool,
}

impl Item {
    /// Returns an item for a text without quotes.
    pub(crate) fn unquoted(text: &str) -> Self {
        Item {
            is_quoted: false,
            ..Self::quoted(text)
        }
    }

    /// Returns an item for a name, which is read neither as a word nor as a range.
    pub fn quoted(name: &str) -> Self {
        Item {
            text: name.to_owned(),
            is_quoted: true,
            container_path: None,
            may_wait: false,
        }
    }

    /// Returns the item with a path for the device's node in the container.
    #[must_use]
    pub fn at_path(self, container: &Path) -> Self {
        Item {
            container_path: Some(container.to_owned()),
            ..self
        }
    }

    /// Returns the name alone, without a path in the container and without the mark.
    #[must_use]
    pub fn without_suffix(&self) -> Self {
        Item {
            container_path: None,
            may_wait: false,
            ..self.clone()
        }
    }

    /// Parses a text that is one item of a list.
    pub fn parse(text: &str) -> Option<Self> {
        match split_list(text).ok()?.as_slice() {
            [item] => Some(item.clone()),
            _ => None,
        }
    }

    /// Returns the item as a list has it.
    pub fn to_text(&self) -> String {
        let mut text = self.name_text();
        if let Some(path) = &self.container_path {
            text.push(':');
            text.push_str(&path.to_string_lossy());
        }
        if self.may_wait {
            text.push(MAY_WAIT);
        }
        text
    }

    /// Returns the name as a list has it, with quotes if it needs them, but without the path in the
    /// container and without the mark.
    pub fn name_text(&self) -> String {
        if self.is_quoted {
            quote(&self.text)
        } else {
            self.text.clone()
        }
    }

    /// Parses the text after the name of an item: a path in the container and the mark, both optional.
    /// Returns `None` if the text has another form.
    fn with_suffix(text: String, is_quoted: bool, suffix: &str) -> Option<Self> {
        let (suffix, may_wait) = match suffix.strip_suffix(MAY_WAIT) {
            Some(suffix) => (suffix.trim_end(), true),
            None => (suffix, false),
        };
        let container_path = match suffix {
            "" => None,
            path if path.starts_with(CONTAINER_PATH) => Some(PathBuf::from(&path[1..])),
            _ => return None,
        };
        Some(Item {
            text,
            is_quoted,
            container_path,
            may_wait,
        })
    }
}

/// The devices that a request or a grant names: a list as it was written, and its items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceList {
    text: String,
    items: Vec<Item>,
}

impl DeviceList {
    pub fn parse(text: &str) -> Result<Self, RequestError> {
        Ok(DeviceList {
            items: split_list(text)?,
            text: text.to_owned(),
        })
    }

    /// Returns a list of one item.
    pub fn from_item(item: Item) -> Self {
        Self::from_items(vec![item])
    }

    pub fn from_items(items: Vec<Item>) -> Self {
        let texts: Vec<String> = items.iter().map(Item::to_text).collect();
        DeviceList {
            text: texts.join(","),
            items,
        }
    }

    /// Returns a list with the items of several lists, each item once.
    pub fn concatenate<'l>(lists: impl IntoIterator<Item = &'l Self>) -> Self {
        let (mut texts, mut items, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
        for list in lists {
            texts.push(list.text.as_str());
            items.extend(list.items.iter().filter(|item| seen.insert(*item)).cloned());
        }
        DeviceList {
            text: texts.join(","),
            items,
        }
    }

    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Returns the list as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for DeviceList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns a name in quotes, as [`split_list`] reads it.
pub fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The name of an item as text in JSON.
pub mod item_name {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    use super::Item;

    pub fn serialize<S: Serializer>(name: &Item, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&name.name_text())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Item, D::Error> {
        let text = String::deserialize(deserializer)?;
        let error = || Error::custom(format_args!("{text:?} is not the name of one device"));
        Item::parse(&text).ok_or_else(error)
    }
}

/// Splits a list into its items. Repeated items are returned once. Empty items, and blanks
/// around items, are ignored. An item that begins with `"` ends at the next `"`, and `""`
/// in it means one quote, as in comma-separated values (RFC 4180). After a name, and after the
/// quotes around one, `:/dev/PATH` is the path of the node in the container, and a `?` at the end
/// means that the device may come later.
pub fn split_list(list: &str) -> Result<Vec<Item>, RequestError> {
    let (mut items, mut seen) = (Vec::new(), BTreeSet::new());
    let mut rest = list.trim_start();
    while !rest.is_empty() {
        let written = rest;
        let item = if let Some(quoted) = rest.strip_prefix('"') {
            let unfinished = || RequestError::Unquoted(rest.to_owned());
            let (text, after) = split_quoted(quoted).ok_or_else(unfinished)?;
            let (suffix, after) = after.split_once(',').unwrap_or((after, ""));
            rest = after;
            Item::with_suffix(text, true, suffix.trim()).ok_or_else(unfinished)?
        } else {
            let (text, after) = rest.split_once(',').unwrap_or((rest, ""));
            rest = after;
            let text = text.trim_end();
            let without_mark = text.strip_suffix(MAY_WAIT).unwrap_or(text).len();
            let name_end = text.find(CONTAINER_PATH).unwrap_or(without_mark);
            let (name, suffix) = text.split_at(name_end);
            Item::with_suffix(name.trim_end().to_owned(), false, suffix).unwrap_or_else(|| Item {
                text: text.to_owned(),
                is_quoted: false,
                container_path: None,
                may_wait: false,
            })
        };
        let written = written[..written.len() - rest.len()].trim_end_matches([',', ' ']);
        rest = rest.trim_start();
        let is_empty = item.text.is_empty() && !item.is_quoted && item.container_path.is_none();
        if !is_empty && seen.insert(written) {
            items.push(item);
        }
    }
    Ok(items)
}

/// Returns the text before the closing quote, and the text after that quote. Returns `None`
/// if there is no closing quote.
fn split_quoted(quoted: &str) -> Option<(String, &str)> {
    let (mut text, mut rest) = (String::new(), quoted);
    loop {
        let (part, after) = rest.split_once('"')?;
        text.push_str(part);
        match after.strip_prefix('"') {
            None => return Some((text, after)),
            Some(after) => {
                text.push('"');
                rest = after;
            }
        }
    }
}

/// Returns a name as an item of a list, and quotes it if [`split_list`] would not read it
/// as the same name otherwise. A name that looks like a range is quoted as well: once its device
/// is unplugged, it would mean the devices with these indices.
pub(super) fn as_item(name: &str) -> Cow<'_, str> {
    let needs_quotes = name.contains(',')
        || name.starts_with('"')
        || name.trim() != name
        || name.contains(CONTAINER_PATH)
        || name.ends_with(MAY_WAIT)
        || looks_like_range(name);
    if needs_quotes {
        Cow::Owned(quote(name))
    } else {
        Cow::Borrowed(name)
    }
}

/// Returns whether a name could be read as a range of indices, even as a malformed range.
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
        for (item, name, may_wait) in [
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
            assert_eq!((&*read.text, read.may_wait), (name, may_wait));
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
            assert!(matches!(error, RequestError::Unquoted(_)), "{list}");
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
            let named = Item::quoted(&name);
            for item in [named.clone(), named.at_path(Path::new(&path))] {
                prop_assert_eq!(Item::parse(&item.to_text()), Some(item));
            }
        }

        #[test]
        fn a_name_is_one_item(names in prop::collection::vec("[a, \"é=?]{1,5}|a:/dev/[b\",]", 1..4)) {
            let items: Vec<_> = names.iter().map(|name| as_item(name)).collect();
            let split = split_list(&items.join(" ,")).unwrap();
            let texts: Vec<String> = split.into_iter().map(|item| item.text).collect();
            for name in &names {
                prop_assert!(texts.contains(name), "{texts:?}");
            }
            prop_assert!(texts.iter().all(|text| names.contains(text)), "{texts:?}");
        }
    }
}
