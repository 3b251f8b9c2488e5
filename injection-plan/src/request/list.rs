//! The list of a request: items with commas between them, of which some are quoted.

use std::borrow::Cow;
use std::collections::BTreeSet;

use device_class::name::IndexRange;

use super::RequestError;

/// One item of a list, without its quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub text: String,
    /// A quoted item is a name or a path, and neither a word, a range nor a CDI name.
    pub is_quoted: bool,
}

impl Item {
    /// Returns the item as a list has it.
    pub fn to_text(&self) -> String {
        if self.is_quoted {
            format!("\"{}\"", self.text.replace('"', "\"\""))
        } else {
            self.text.clone()
        }
    }
}

/// The items of a list, each once. Empty ones and the blanks around each are ignored. An item
/// that begins with `"` ends with the next `"`, of which two together are one in the text, as
/// in comma-separated values (RFC 4180).
pub fn split_list(list: &str) -> Result<Vec<Item>, RequestError> {
    let (mut items, mut seen) = (Vec::new(), BTreeSet::new());
    let mut rest = list.trim_start();
    while !rest.is_empty() {
        let written = rest;
        let item = if let Some(quoted) = rest.strip_prefix('"') {
            let unfinished = || RequestError::Unquoted(rest.to_owned());
            let (text, after) = split_quoted(quoted).ok_or_else(unfinished)?;
            let after = after.trim_start();
            rest = match after.strip_prefix(',') {
                None if !after.is_empty() => return Err(unfinished()),
                next => next.unwrap_or_default(),
            };
            Item {
                text,
                is_quoted: true,
            }
        } else {
            let (text, after) = rest.split_once(',').unwrap_or((rest, ""));
            rest = after;
            Item {
                text: text.trim_end().to_owned(),
                is_quoted: false,
            }
        };
        let written = written[..written.len() - rest.len()].trim_end_matches([',', ' ']);
        rest = rest.trim_start();
        let is_empty = item.text.is_empty() && !item.is_quoted;
        if !is_empty && seen.insert(written) {
            items.push(item);
        }
    }
    Ok(items)
}

/// The text before the quote that ends it, and what follows. `None`: nothing ends it.
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

/// A name as an item of a list, in quotes if it needs them. A name that looks like a range needs
/// them: once its device is unplugged, it would mean the devices with these indices.
pub(super) fn as_item(name: &str) -> Cow<'_, str> {
    let needs_quotes = name.contains(',')
        || name.starts_with('"')
        || name.trim() != name
        || looks_like_range(name);
    if needs_quotes {
        Cow::Owned(format!("\"{}\"", name.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(name)
    }
}

/// Whether a name could be a range of indices, also one that is not well formed.
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
            ("a,\"a\"", vec![("a", false), ("a", true)]),
        ] {
            let items = split_list(list).unwrap();
            let items: Vec<_> = items
                .iter()
                .map(|item| (item.text.as_str(), item.is_quoted))
                .collect();
            assert_eq!(items, expected, "{list}");
        }
        for list in ["\"", "a,\"b", "\"a\"b", "\"a\" \"b\"", "\"a\"\""] {
            let error = split_list(list).unwrap_err();
            assert!(matches!(error, RequestError::Unquoted(_)), "{list}");
        }
    }

    proptest! {
        #[test]
        fn a_name_is_one_item(names in prop::collection::vec("[a, \"é=]{1,5}", 1..4)) {
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
