//! Splits the text of a request into items. Items are separated by commas and may be
//! quoted.

use std::borrow::Cow;
use std::collections::BTreeSet;

use device_class::name::IndexRange;

use super::RequestError;

/// One item of a request, without its quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub text: String,
    /// Whether the item was quoted. A quoted item is a name or a path; it is not read as a
    /// word such as `all`, as a range or as a CDI name.
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

/// Splits a list into its items. Repeated items are returned once. Empty items, and blanks
/// around items, are ignored. An item that begins with `"` ends at the next `"`, and `""`
/// in it means one quote, as in comma-separated values (RFC 4180).
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
        || looks_like_range(name);
    if needs_quotes {
        Cow::Owned(format!("\"{}\"", name.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(name)
    }
}

/// Returns whether a name could be read as a range of indexes, even as a malformed range.
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
