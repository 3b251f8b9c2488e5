//! Edits a JSON text without changing any other byte of it. Unknown members, the digits of numbers,
//! the order of members, and white space stay as they are. `boathook-runtime` edits config.json
//! with this module, and the installer edits daemon.json. The module reads and writes no files.
//!
//! serde_json splits the text into slices (`RawValue`), so this module needs no parser of its own.
//! [`set_member`] and [`remove_member`] undo each other. They are for files whose readers use the
//! last value of a duplicate key, as Go's decoder does. [`append_item`] is for files whose readers
//! disagree about duplicate keys. It returns an error if an object that it edits has a duplicate
//! key.

#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The reason why [`append_item`] cannot add an item.
#[derive(Debug, thiserror::Error)]
pub enum JsonEditError {
    /// The text is not JSON, or the value at `key_path` does not have the expected type.
    #[error("`{key_path}` is not {expected}")]
    UnexpectedType {
        /// The keys on the way to the value, joined by dots, such as `hooks.prestart`.
        key_path: String,
        expected: &'static str,
        source: serde_json::Error,
    },
    /// An object has this key twice. OCI runtimes disagree about which of the two values counts.
    #[error("duplicate key `{0}`")]
    DuplicateKey(String),
}

/// Parses a JSON text. Bytes that are not UTF-8 become U+FFFD, as in Go's decoder.
///
/// # Errors
/// Returns an error if the text is not JSON, or if its value does not have the type `T`.
pub fn parse<T: DeserializeOwned>(text: &[u8]) -> serde_json::Result<T> {
    // Checking the whole text for UTF-8 once is faster than letting serde_json check each string.
    serde_json::from_str(&String::from_utf8_lossy(text))
}

/// The members of a JSON object, in the order of the text. If a key occurs twice, both members are
/// listed.
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

/// Returns the byte range of the value at the end of a chain of keys, such as `["process", "env"]`.
/// Returns `None` if a key is missing, or if one of the values on the way is not an object.
pub fn find_value(text: &str, keys: &[&str]) -> Option<Range<usize>> {
    let start = text.len() - text.trim_start().len();
    let whole_range = start..start + text.trim().len();
    keys.iter().try_fold(whole_range, |object, key| {
        let mut members = list_members(text, object).into_iter();
        let (_, value) = members.rfind(|(name, _)| name == key)?;
        Some(value)
    })
}

/// Sets the member `key` of an object to the JSON text `value`, and returns the new text. `object`
/// is the byte range of the object. The value of an existing member is replaced. A new member
/// becomes the first one, with the same white space before it as before the next member.
pub fn set_member(text: &str, object: Range<usize>, key: &str, value: &str) -> String {
    let members = list_members(text, object.clone());
    if let Some((_, old_value)) = members.iter().rfind(|(name, _)| name == key) {
        return splice(text, old_value.clone(), value);
    }
    let content_start = object.start + 1;
    let member = quote(key) + ": " + value;
    if members.is_empty() {
        let indent = find_indent(text, object.start);
        let content = format!("\n{indent}    {member}\n{indent}");
        return splice(text, content_start..object.end - 1, &content);
    }
    let rest = &text[content_start..];
    let leading_whitespace = &rest[..rest.len() - rest.trim_start().len()];
    splice(
        text,
        content_start..content_start,
        &format!("{leading_whitespace}{member},"),
    )
}

/// Removes the member `key` and its comma from an object, and returns the new text. `object` is the
/// byte range of the object. If there is no such member, the text is unchanged.
pub fn remove_member(text: &str, object: Range<usize>, key: &str) -> String {
    let members = list_members(text, object.clone());
    let Some(index) = members.iter().rposition(|(name, _)| name == key) else {
        return text.to_owned();
    };
    let end = members[index].1.end;
    let removed_range = match (index.checked_sub(1), members.get(index + 1)) {
        (Some(previous), _) => members[previous].1.end..end,
        (None, Some(_)) => {
            let after_comma = text[end..].find(',').map_or(end, |comma| end + comma + 1);
            object.start + 1..after_comma
        }
        (None, None) => object.start + 1..object.end - 1,
    };
    splice(text, removed_range, "")
}

/// Appends the JSON text `item` to the list at the end of the chain `keys`, and returns the new
/// text. If the list or an object above it is missing or `null`, it is created.
///
/// # Errors
/// Returns an error if the text is not JSON, if one of the values on the way has another type, or
/// if one of the objects has a key of `keys` twice.
pub fn append_item(text: &str, keys: &[&str], item: &str) -> Result<String, JsonEditError> {
    let (value, missing_keys) = find_innermost(text, keys)?;
    if value == "null" {
        return Ok(splice(
            text,
            find_range(text, value),
            &format_nested_item(missing_keys, item),
        ));
    }
    let (last_value, addition) = match missing_keys {
        [] => {
            let items: Vec<&RawValue> = deserialize(value, keys, "a list")?;
            (items.last().copied(), item.to_owned())
        }
        [key, rest @ ..] => {
            let object_keys = &keys[..keys.len() - missing_keys.len()];
            let Members(members) = deserialize(value, object_keys, "an object")?;
            let member = format!("{}:{}", quote(key), format_nested_item(rest, item));
            (members.last().map(|(_, value)| *value), member)
        }
    };
    Ok(match last_value {
        Some(last_value) => {
            let end = find_range(text, last_value.get()).end;
            splice(text, end..end, &format!(",{addition}"))
        }
        None => {
            // The list or object is empty, so the addition comes directly after the opening
            // bracket.
            let content_start = find_range(text, value.trim_start()).start + 1;
            splice(text, content_start..content_start, &addition)
        }
    })
}

/// Returns the JSON text of each item of the list at the end of the chain `keys`. If there is no
/// such list, the result is empty.
pub fn list_items<'t>(text: &'t str, keys: &[&str]) -> Vec<&'t str> {
    let list = match find_innermost(text, keys) {
        Ok((value, [])) => serde_json::from_str(value),
        _ => return Vec::new(),
    };
    let list: Vec<&RawValue> = list.unwrap_or_default();
    list.into_iter().map(RawValue::get).collect()
}

/// Follows a chain of keys, starting at the outermost value of the text. Returns the last value
/// that exists, and the remaining keys. The first remaining key is missing in this value.
fn find_innermost<'t, 'k>(
    text: &'t str,
    keys: &'k [&'k str],
) -> Result<(&'t str, &'k [&'k str]), JsonEditError> {
    let mut value = text;
    for (depth, key) in keys.iter().enumerate() {
        if value == "null" {
            return Ok((value, &keys[depth..]));
        }
        let Members(members) = deserialize(value, &keys[..depth], "an object")?;
        let mut matches = members.iter().filter(|(name, _)| name == key);
        value = match (matches.next(), matches.next()) {
            (None, _) => return Ok((value, &keys[depth..])),
            (Some((_, value)), None) => value.get(),
            (Some(_), Some(_)) => {
                return Err(JsonEditError::DuplicateKey(join_keys(&keys[..=depth])));
            }
        };
    }
    Ok((value, &[]))
}

/// Deserializes the JSON text `value`. `keys` are the keys on the way to it. `expected` names the
/// type in the error message.
fn deserialize<'t, T: Deserialize<'t>>(
    value: &'t str,
    keys: &[&str],
    expected: &'static str,
) -> Result<T, JsonEditError> {
    serde_json::from_str(value).map_err(|source| JsonEditError::UnexpectedType {
        key_path: join_keys(keys),
        expected,
        source,
    })
}

/// Returns the keys of an object, each with the byte range of its value. `object` is the byte range
/// of the object. If there is no object, the result is empty.
pub fn list_members(text: &str, object: Range<usize>) -> Vec<(String, Range<usize>)> {
    let parsed_members = text.get(object).map(serde_json::from_str);
    let Some(Ok(Members(members))) = parsed_members else {
        return Vec::new();
    };
    members
        .into_iter()
        .map(|(key, value)| (key, find_range(text, value.get())))
        .collect()
}

/// Returns the byte range of `slice` in `text`. `slice` must be a slice of `text`.
fn find_range(text: &str, slice: &str) -> Range<usize> {
    let start = slice.as_ptr().addr() - text.as_ptr().addr();
    start..start + slice.len()
}

/// Returns `text` with `replacement` in place of the byte range `range`.
fn splice(text: &str, range: Range<usize>, replacement: &str) -> String {
    format!(
        "{}{replacement}{}",
        &text[..range.start],
        &text[range.end..]
    )
}

/// Returns the white space at the beginning of the line that contains the byte `offset`.
fn find_indent(text: &str, offset: usize) -> &str {
    let line_start = text[..offset]
        .rfind('\n')
        .map_or(0, |line_feed| line_feed + 1);
    let line = &text[line_start..];
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// Returns the JSON text of a list with one item, nested in one object for each of the keys. For
/// the keys `a` and `b` and the item `1`, this is `{"a":{"b":[1]}}`.
fn format_nested_item(keys: &[&str], item: &str) -> String {
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
