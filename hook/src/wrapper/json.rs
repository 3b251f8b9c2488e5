//! Adds to a JSON text and leaves every other byte of it alone: unknown
//! members, the texts of numbers, the order, white space.
//!
//! serde_json takes the text apart into slices of itself (`RawValue`), so that
//! nothing here has an opinion of its own on what is valid.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Why something can't be added.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The text is not JSON, or has something else where a list or an object
    /// belongs.
    #[error("`{place}` is not {wanted}: {error}")]
    Kind {
        /// The keys that lead there.
        place: String,
        /// What should be there.
        wanted: &'static str,
        /// What serde_json says.
        error: serde_json::Error,
    },
    /// A member stands twice. Runtimes differ in which of them counts.
    #[error("`{0}` stands there twice")]
    Twice(String),
}

/// An object's members in their order.
struct Members<'t>(Vec<(String, &'t RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
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

        deserializer.deserialize_map(InOrder)
    }
}

/// Adds `item` at the end of the list under `keys`, and makes what is missing
/// on the way there. A `null` counts as missing.
pub(super) fn append(text: &str, keys: &[&str], item: &str) -> Result<String, EditError> {
    let (value, missing) = descend(text, keys)?;
    if value == "null" {
        let (before, after) = around(text, value);
        return Ok(format!("{before}{}{after}", nested(missing, item)));
    }
    let (last, added) = match missing {
        [] => {
            let items: Vec<&RawValue> = parse(value, keys, "a list")?;
            (items.last().map(|item| item.get()), item.to_owned())
        }
        [key, rest @ ..] => {
            let Members(members) = parse(value, &keys[..keys.len() - missing.len()], "an object")?;
            let added = format!("{}:{}", quoted(key), nested(rest, item));
            (members.last().map(|(_, value)| value.get()), added)
        }
    };
    Ok(match last {
        Some(last) => {
            let (before, after) = around(text, last);
            format!("{before}{last},{added}{after}")
        }
        None => {
            // An empty list or object: right after its bracket.
            let bracket = around(text, value.trim_start()).0.len() + 1;
            format!("{}{added}{}", &text[..bracket], &text[bracket..])
        }
    })
}

/// The items of the list under `keys`; none when there is no such list.
pub(super) fn items<'t>(text: &'t str, keys: &[&str]) -> Vec<&'t str> {
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
        let Members(members) = parse(value, &keys[..depth], "an object")?;
        let mut named = members.iter().filter(|(name, _)| name == key);
        value = match (named.next(), named.next()) {
            (None, _) => return Ok((value, &keys[depth..])),
            (Some((_, value)), None) => value.get(),
            (Some(_), Some(_)) => return Err(EditError::Twice(place(&keys[..=depth]))),
        };
    }
    Ok((value, &[]))
}

fn parse<'t, T: Deserialize<'t>>(
    value: &'t str,
    keys: &[&str],
    wanted: &'static str,
) -> Result<T, EditError> {
    serde_json::from_str(value).map_err(|error| EditError::Kind {
        place: place(keys),
        wanted,
        error,
    })
}

/// What stands before and after `part`, a slice of `text`.
fn around<'t>(text: &'t str, part: &str) -> (&'t str, &'t str) {
    let start = part.as_ptr().addr() - text.as_ptr().addr();
    (&text[..start], &text[start + part.len()..])
}

fn nested(keys: &[&str], item: &str) -> String {
    let list = format!("[{item}]");
    keys.iter()
        .rfold(list, |value, key| format!("{{{}:{value}}}", quoted(key)))
}

fn quoted(key: &str) -> String {
    serde_json::Value::from(key).to_string()
}

fn place(keys: &[&str]) -> String {
    if keys.is_empty() {
        "the whole text".into()
    } else {
        keys.join(".")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 2] = ["hooks", "prestart"];

    #[test]
    fn an_item_goes_to_the_end_of_its_list() {
        for (before, after) in [
            ("{}", r#"{"hooks":{"prestart":[7]}}"#),
            (" { \n} \n", " {\"hooks\":{\"prestart\":[7]} \n} \n"),
            (r#"{"a":1}"#, r#"{"a":1,"hooks":{"prestart":[7]}}"#),
            (
                "{\n  \"a\": 1\n}\n",
                "{\n  \"a\": 1,\"hooks\":{\"prestart\":[7]}\n}\n",
            ),
            (
                r#"{"hooks": {}, "b": 2}"#,
                r#"{"hooks": {"prestart":[7]}, "b": 2}"#,
            ),
            (
                r#"{"hooks": null , "b": 2}"#,
                r#"{"hooks": {"prestart":[7]} , "b": 2}"#,
            ),
            (
                r#"{"hooks": {"prestart" : null}}"#,
                r#"{"hooks": {"prestart" : [7]}}"#,
            ),
            (
                r#"{"hooks": {"prestart": [ ] , "poststop": []}}"#,
                r#"{"hooks": {"prestart": [7 ] , "poststop": []}}"#,
            ),
            (
                r#"{"hooks": {"prestart": [ {"path": "/x"} ]}}"#,
                r#"{"hooks": {"prestart": [ {"path": "/x"},7 ]}}"#,
            ),
            // Look-alikes: another object's member, another case, an escape.
            (
                r#"{"x": {"hooks": {"prestart": []}}}"#,
                r#"{"x": {"hooks": {"prestart": []}},"hooks":{"prestart":[7]}}"#,
            ),
            (
                r#"{"Hooks": {"prestart": []}}"#,
                r#"{"Hooks": {"prestart": []},"hooks":{"prestart":[7]}}"#,
            ),
            (
                r#"{"ho\u006fks": {"prestart": [1]}}"#,
                r#"{"ho\u006fks": {"prestart": [1,7]}}"#,
            ),
            (
                r#"{"\"hooks\": {": "}]", "hooks": {"prestart": ["]}", "\\"]}}"#,
                r#"{"\"hooks\": {": "}]", "hooks": {"prestart": ["]}", "\\",7]}}"#,
            ),
        ] {
            assert_eq!(append(before, &KEYS, "7").unwrap(), after, "{before}");
        }
    }

    /// Whatever a reader of numbers, of maps or of text could change.
    #[test]
    fn nothing_else_changes() {
        let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
        let texts = [
            r#""n": [1e400, -0, -0.0, 1.10, 1E+2, 18446744073709551616, 0.1000000000000000055511151231257827]"#,
            r#""z": 1, "a": 2, "m": 3, "": 0"#,
            r#""twice": 1, "twice": 2"#,
            "\"tabs\"\t:\r\n\t[ 1 ,\t2 ]  ",
            r#""escapes": "\u0000\ud83d\ude00\/\b\u00e9""#,
            r#""plain": "é😀 \u007f""#,
            &format!(r#""deep": {deep}"#),
            r#""unknown": {"future": [{"x": null}]}"#,
        ];
        for text in texts {
            let before =
                format!("{{{text}, \"hooks\": {{{text}, \"prestart\": [{{{text}}}]}}, {text}}}");
            let after = append(&before, &KEYS, "7").unwrap();
            assert_eq!(after.replace("},7]", "}]"), before);
            assert_eq!(items(&after, &KEYS).len(), 2);
            assert_eq!(items(&after, &KEYS)[1], "7");
        }
    }

    #[test]
    fn what_has_no_place_for_it_is_refused() {
        for (text, reason) in [
            ("", "`the whole text` is not an object: EOF"),
            ("[]", "`the whole text` is not an object: invalid type"),
            (
                "{\"a\": 1,}",
                "`the whole text` is not an object: trailing comma",
            ),
            (
                "{} x",
                "`the whole text` is not an object: trailing characters",
            ),
            (
                "\u{feff}{}",
                "`the whole text` is not an object: expected value",
            ),
            (
                r#"{"a": NaN}"#,
                "`the whole text` is not an object: expected value",
            ),
            (r#"{"hooks": []}"#, "`hooks` is not an object: invalid type"),
            (
                r#"{"hooks": {"prestart": {}}}"#,
                "`hooks.prestart` is not a list",
            ),
            (
                r#"{"hooks": {"prestart": "[]"}}"#,
                "`hooks.prestart` is not a list",
            ),
            (
                r#"{"hooks": {}, "hooks": {}}"#,
                "`hooks` stands there twice",
            ),
            (
                r#"{"hooks": {}, "hoo\u006bs": {}}"#,
                "`hooks` stands there twice",
            ),
            (
                r#"{"hooks": {"prestart": [], "prestart": []}}"#,
                "`hooks.prestart` stands there twice",
            ),
        ] {
            let error = append(text, &KEYS, "7").unwrap_err().to_string();
            assert!(error.starts_with(reason), "{text}: {error}");
            assert!(items(text, &KEYS).is_empty(), "{text}");
        }
    }
}
