//! Edits of a JSON text that leave every other byte alone: unknown members, the
//! texts of numbers, the order, white space.
//!
//! serde_json takes the text apart into slices of itself (`RawValue`), so that
//! what is valid is decided nowhere else. [`set`] and [`remove`] are for files of
//! which the last of two equal keys counts, as in Go's decoder, and undo each
//! other; [`append`] is for files whose readers differ in that, and refuses them.

#![forbid(unsafe_code)]

#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Why something cannot be added.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The text is not JSON, or has something else where a list or an object
    /// belongs.
    #[error("`{place}` is not {expected}")]
    Kind {
        /// The keys that lead there.
        place: String,
        expected: &'static str,
        source: serde_json::Error,
    },
    /// A key is there twice. Runtimes differ in which of them counts.
    #[error("duplicate key `{0}`")]
    Duplicate(String),
}

/// Parses a JSON text. What is not UTF-8 becomes U+FFFD, as in Go's decoder.
///
/// # Errors
/// The text is not JSON, or not of the type.
pub fn parse<T: DeserializeOwned>(text: &[u8]) -> serde_json::Result<T> {
    // One check of all the text costs less than one of each string.
    serde_json::from_str(&String::from_utf8_lossy(text))
}

/// An object's members in their order.
struct Members<'t>(Vec<(String, &'t RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;

        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(MembersVisitor)
    }
}

pub fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Where the value under a chain of keys is; `None` if it is missing or what
/// leads there is no object.
pub fn find(text: &str, keys: &[&str]) -> Option<Range<usize>> {
    let start = text.len() - text.trim_start().len();
    let whole = start..start + text.trim().len();
    keys.iter().try_fold(whole, |object, key| {
        {
            let found = members(text, object);
            found.into_iter().rfind(|(name, _)| name == key)
        }
        .map(|(_, value)| value)
    })
}

/// Puts a member first in the object at `object`, with the white space of the
/// member after it, or replaces its value.
pub fn set(text: &str, object: Range<usize>, key: &str, value: &str) -> String {
    let all = members(text, object.clone());
    if let Some((_, old)) = all.iter().rfind(|(name, _)| name == key) {
        return splice(text, old.clone(), value);
    }
    let inside = object.start + 1;
    let entry = quote(key) + ": " + value;
    if all.is_empty() {
        let outer = indent_of(text, object.start);
        let with = format!("\n{outer}    {entry}\n{outer}");
        return splice(text, inside..object.end - 1, &with);
    }
    let rest = &text[inside..];
    let space = &rest[..rest.len() - rest.trim_start().len()];
    splice(text, inside..inside, &format!("{space}{entry},"))
}

/// Takes a member out of the object at `object`, if it is there, with the comma
/// that came with it.
pub fn remove(text: &str, object: Range<usize>, key: &str) -> String {
    let all = members(text, object.clone());
    let Some(index) = all.iter().rposition(|(name, _)| name == key) else {
        return text.to_owned();
    };
    let end = all[index].1.end;
    let cut = match (index.checked_sub(1), all.get(index + 1)) {
        (Some(before), _) => all[before].1.end..end,
        (None, Some(_)) => {
            let comma = text[end..].find(',').map_or(end, |comma| end + comma + 1);
            object.start + 1..comma
        }
        (None, None) => object.start + 1..object.end - 1,
    };
    splice(text, cut, "")
}

/// Adds `item` at the end of the list under `keys`, and creates what is missing
/// on the way there. A `null` counts as missing.
///
/// # Errors
/// The text is not JSON, something else is in the way, or a key on the way is
/// there twice.
pub fn append(text: &str, keys: &[&str], item: &str) -> Result<String, EditError> {
    let (value, missing) = descend(text, keys)?;
    if value == "null" {
        return Ok(splice(text, range(text, value), &nested(missing, item)));
    }
    let (last, added) = match missing {
        [] => {
            let items: Vec<&RawValue> = part(value, keys, "a list")?;
            (items.last().copied(), item.to_owned())
        }
        [key, rest @ ..] => {
            let place = &keys[..keys.len() - missing.len()];
            let Members(members) = part(value, place, "an object")?;
            let added = format!("{}:{}", quote(key), nested(rest, item));
            (members.last().map(|(_, value)| *value), added)
        }
    };
    Ok(match last {
        Some(last) => {
            let end = range(text, last.get()).end;
            splice(text, end..end, &format!(",{added}"))
        }
        None => {
            // An empty list or object: right after its bracket.
            let bracket = range(text, value.trim_start()).start + 1;
            splice(text, bracket..bracket, &added)
        }
    })
}

/// The items of the list under `keys`; none if there is no such list.
pub fn items<'t>(text: &'t str, keys: &[&str]) -> Vec<&'t str> {
    let list = match descend(text, keys) {
        Ok((value, [])) => serde_json::from_str(value),
        _ => return Vec::new(),
    };
    let list: Vec<&RawValue> = list.unwrap_or_default();
    list.into_iter().map(RawValue::get).collect()
}

/// The innermost value that is there, and the keys that are missing in it.
fn descend<'t, 'k>(
    text: &'t str,
    keys: &'k [&'k str],
) -> Result<(&'t str, &'k [&'k str]), EditError> {
    let mut value = text;
    for (depth, key) in keys.iter().enumerate() {
        if value == "null" {
            return Ok((value, &keys[depth..]));
        }
        let Members(members) = part(value, &keys[..depth], "an object")?;
        let mut named = members.iter().filter(|(name, _)| name == key);
        value = match (named.next(), named.next()) {
            (None, _) => return Ok((value, &keys[depth..])),
            (Some((_, value)), None) => value.get(),
            (Some(_), Some(_)) => return Err(EditError::Duplicate(place(&keys[..=depth]))),
        };
    }
    Ok((value, &[]))
}

fn part<'t, T: Deserialize<'t>>(
    value: &'t str,
    keys: &[&str],
    expected: &'static str,
) -> Result<T, EditError> {
    serde_json::from_str(value).map_err(|source| EditError::Kind {
        place: place(keys),
        expected,
        source,
    })
}

/// The keys of the object at `object` and where their values are; none if there
/// is no object.
pub fn members(text: &str, object: Range<usize>) -> Vec<(String, Range<usize>)> {
    let found = text.get(object).map(serde_json::from_str);
    let Some(Ok(Members(members))) = found else {
        return Vec::new();
    };
    let member = |(key, value): (_, &RawValue)| (key, range(text, value.get()));
    members.into_iter().map(member).collect()
}

/// Where `part`, a slice of `text`, is in it.
fn range(text: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr().addr() - text.as_ptr().addr();
    start..start + part.len()
}

fn splice(text: &str, range: Range<usize>, with: &str) -> String {
    format!("{}{with}{}", &text[..range.start], &text[range.end..])
}

/// The white space at the beginning of the line around an offset.
fn indent_of(text: &str, offset: usize) -> &str {
    let line = text[..offset].rfind('\n').map_or(0, |line| line + 1);
    let rest = &text[line..];
    &rest[..rest.len() - rest.trim_start_matches([' ', '\t']).len()]
}

fn nested(keys: &[&str], item: &str) -> String {
    let list = format!("[{item}]");
    keys.iter()
        .rfold(list, |value, key| format!("{{{}:{value}}}", quote(key)))
}

fn place(keys: &[&str]) -> String {
    if keys.is_empty() {
        "the whole text".into()
    } else {
        keys.join(".")
    }
}
