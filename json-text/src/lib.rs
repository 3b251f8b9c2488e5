//! Edits a JSON text without changing any other byte of it: unknown members, the digits
//! of numbers, the order of members and white space stay as they are.
//!
//! serde_json splits the text into slices (`RawValue`), so this crate needs no parser of
//! its own. [`set`] and [`remove`] undo each other. They are for files whose readers use
//! the last of two equal keys, as Go's decoder does. [`append`] is for files whose readers
//! disagree about equal keys, and returns an error if it finds any on its way.

#![forbid(unsafe_code)]

#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The reason why [`append`] cannot add an item.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The text is not JSON, or a value on the way is neither the list nor the object
    /// that is expected there.
    #[error("`{place}` is not {expected}")]
    Kind {
        /// The keys that lead to the value, joined by dots.
        place: String,
        expected: &'static str,
        source: serde_json::Error,
    },
    /// An object has this key twice. Runtimes disagree about which of the two values
    /// they use.
    #[error("duplicate key `{0}`")]
    Duplicate(String),
}

/// Parses a JSON text. Bytes that are not UTF-8 become U+FFFD, as in Go's decoder.
///
/// # Errors
/// Returns an error if the text is not JSON, or if its value does not have the type `T`.
pub fn parse<T: DeserializeOwned>(text: &[u8]) -> serde_json::Result<T> {
    // Checking the whole text for UTF-8 once is faster than checking each string.
    serde_json::from_str(&String::from_utf8_lossy(text))
}

/// The members of a JSON object in the order of the text. Equal keys are kept.
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

/// Returns `text` as a JSON string, with quotes and escapes.
pub fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Returns the byte range of the value that a chain of keys leads to. Returns `None` if a
/// key is missing, or if a value on the way is not an object.
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

/// Sets the member `key` of the object at the byte range `object`, and returns the new
/// text. An existing member gets the new value. A new member becomes the first one, with
/// the same white space before it as the next member has.
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

/// Removes the member `key` and its comma from the object at the byte range `object`, and
/// returns the new text. The text is unchanged if there is no such member.
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

/// Adds `item` at the end of the list that `keys` lead to, and returns the new text.
/// Missing objects on the way and a missing list are created; `null` counts as missing.
///
/// # Errors
/// Returns an error if the text is not JSON, if a value on the way has another type, or if
/// an object on the way has a key of `keys` twice.
pub fn append(text: &str, keys: &[&str], item: &str) -> Result<String, EditError> {
    let (value, missing) = find_innermost(text, keys)?;
    if value == "null" {
        return Ok(splice(
            text,
            find_range(text, value),
            &build_nested(missing, item),
        ));
    }
    let (last, added) = match missing {
        [] => {
            let items: Vec<&RawValue> = part(value, keys, "a list")?;
            (items.last().copied(), item.to_owned())
        }
        [key, rest @ ..] => {
            let place = &keys[..keys.len() - missing.len()];
            let Members(members) = part(value, place, "an object")?;
            let added = format!("{}:{}", quote(key), build_nested(rest, item));
            (members.last().map(|(_, value)| *value), added)
        }
    };
    Ok(match last {
        Some(last) => {
            let end = find_range(text, last.get()).end;
            splice(text, end..end, &format!(",{added}"))
        }
        None => {
            // The list or object is empty, so the item goes right after the bracket.
            let bracket = find_range(text, value.trim_start()).start + 1;
            splice(text, bracket..bracket, &added)
        }
    })
}

/// Returns the JSON text of each item of the list that `keys` lead to. The result is empty
/// if there is no such list.
pub fn items<'t>(text: &'t str, keys: &[&str]) -> Vec<&'t str> {
    let list = match find_innermost(text, keys) {
        Ok((value, [])) => serde_json::from_str(value),
        _ => return Vec::new(),
    };
    let list: Vec<&RawValue> = list.unwrap_or_default();
    list.into_iter().map(RawValue::get).collect()
}

/// Follows `keys` from the whole text, and returns the innermost value that exists and the
/// keys that are missing in it.
fn find_innermost<'t, 'k>(
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
            (Some(_), Some(_)) => return Err(EditError::Duplicate(join_keys(&keys[..=depth]))),
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
        place: join_keys(keys),
        expected,
        source,
    })
}

/// Returns the keys of the object at the byte range `object`, each with the byte range of
/// its value. The result is empty if the range does not contain an object.
pub fn members(text: &str, object: Range<usize>) -> Vec<(String, Range<usize>)> {
    let found = text.get(object).map(serde_json::from_str);
    let Some(Ok(Members(members))) = found else {
        return Vec::new();
    };
    let member = |(key, value): (_, &RawValue)| (key, find_range(text, value.get()));
    members.into_iter().map(member).collect()
}

/// Returns the byte range of `part` in `text`. `part` must be a slice of `text`.
fn find_range(text: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr().addr() - text.as_ptr().addr();
    start..start + part.len()
}

fn splice(text: &str, range: Range<usize>, with: &str) -> String {
    format!("{}{with}{}", &text[..range.start], &text[range.end..])
}

/// Returns the white space at the beginning of the line that contains byte `offset`.
fn indent_of(text: &str, offset: usize) -> &str {
    let line = text[..offset].rfind('\n').map_or(0, |line| line + 1);
    let rest = &text[line..];
    &rest[..rest.len() - rest.trim_start_matches([' ', '\t']).len()]
}

fn build_nested(keys: &[&str], item: &str) -> String {
    let list = format!("[{item}]");
    keys.iter()
        .rfold(list, |value, key| format!("{{{}:{value}}}", quote(key)))
}

fn join_keys(keys: &[&str]) -> String {
    if keys.is_empty() {
        "the whole text".into()
    } else {
        keys.join(".")
    }
}
