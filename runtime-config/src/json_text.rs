//! Edits of a JSON text that leave every other byte alone.
//!
//! serde_json has the last word on what is valid; the scanner here only finds
//! where things stand in a text that it has accepted. A member is put first in
//! its object, with the white space of the member after it, and taken out
//! again with the comma that came with it.

mod scan;

use std::ops::Range;
use std::path::Path;

use crate::error::Error;
use crate::toml_text::line_of;
use scan::{Member, members};

/// Checks that a text is one JSON object.
pub(crate) fn check_object(path: &Path, text: &str) -> Result<(), Error> {
    let problem = match serde_json::from_str::<serde_json::Value>(text) {
        Ok(value) if value.is_object() => return Ok(()),
        Ok(_) => (1, "not a JSON object".to_owned()),
        Err(e) => (e.line(), e.to_string()),
    };
    Err(Error::Syntax {
        path: path.into(),
        line: problem.0.max(1),
        message: problem.1,
    })
}

/// A JSON string.
pub(crate) fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Where the value under a chain of keys stands. `text` must be a valid object.
///
/// Of a key that stands twice the last counts, as in Go's decoder.
pub(crate) fn find(text: &str, keys: &[&str]) -> Option<Range<usize>> {
    let start = text.find('{')?;
    let end = text.rfind('}')? + 1;
    keys.iter().try_fold(start..end, |object, key| {
        Some(member(text, object, key)?.value)
    })
}

/// Puts a member first in the object at `object`, or replaces its value.
pub(crate) fn set(text: &str, object: Range<usize>, key: &str, value: &str) -> String {
    if let Some(old) = member(text, object.clone(), key) {
        return splice(text, old.value, value);
    }
    let inside = object.start + 1;
    let (entry, with) = (quote(key) + ": " + value, inside..object.end - 1);
    match members(text, object.clone()).first() {
        Some(first) => {
            let space = &text[inside..first.key.start];
            splice(text, inside..inside, &format!("{space}{entry},"))
        }
        None => {
            let outer = indent_of(text, object.start);
            splice(text, with, &format!("\n{outer}    {entry}\n{outer}"))
        }
    }
}

/// Takes a member out of the object at `object`, if it is there.
pub(crate) fn remove(text: &str, object: Range<usize>, key: &str) -> String {
    let all = members(text, object.clone());
    let Some(index) = all.iter().rposition(|m| m.is_named(text, key)) else {
        return text.to_owned();
    };
    let cut = match (index.checked_sub(1), all.get(index + 1)) {
        (Some(before), _) => all[before].value.end..all[index].value.end,
        (None, Some(_)) => {
            let end = all[index].value.end;
            let comma = text[end..].find(',').map_or(end, |c| end + c + 1);
            object.start + 1..comma
        }
        (None, None) => object.start + 1..object.end - 1,
    };
    splice(text, cut, "")
}

fn member(text: &str, object: Range<usize>, key: &str) -> Option<Member> {
    members(text, object)
        .into_iter()
        .rfind(|m| m.is_named(text, key))
}

/// The white space at the beginning of the line around an offset.
fn indent_of(text: &str, offset: usize) -> &str {
    let line = text[..offset].rfind('\n').map_or(0, |n| n + 1);
    let rest = &text[line..];
    &rest[..rest.len() - rest.trim_start_matches([' ', '\t']).len()]
}

/// The number of the line where the value under `keys` begins.
pub(crate) fn line_at(text: &str, keys: &[&str]) -> usize {
    line_of(text, find(text, keys).map_or(0, |value| value.start))
}

fn splice(text: &str, range: Range<usize>, with: &str) -> String {
    format!("{}{with}{}", &text[..range.start], &text[range.end..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_member_goes_in_and_comes_out() {
        let cases = [
            ("{\"a\": 1}", "{\"x\": {},\"a\": 1}"),
            (
                "{\n\t\"a\": [1, {\"x\": 2}]\n}\n",
                "{\n\t\"x\": {},\n\t\"a\": [1, {\"x\": 2}]\n}\n",
            ),
            (
                " { \"}\\\"{\" : \"x\" } ",
                " { \"x\": {}, \"}\\\"{\" : \"x\" } ",
            ),
        ];
        for (before, after) in cases {
            let whole = find(before, &[]).unwrap();
            let edited = set(before, whole, "x", "{}");
            assert_eq!(edited, after);
            assert_eq!(remove(&edited, find(&edited, &[]).unwrap(), "x"), before);
        }
    }

    #[test]
    fn an_empty_object_gets_a_line() {
        let text = "{\n  \"runtimes\": {}\n}";
        let edited = set(text, find(text, &["runtimes"]).unwrap(), "x", "1");
        assert_eq!(edited, "{\n  \"runtimes\": {\n      \"x\": 1\n  }\n}");
        let taken = remove(&edited, find(&edited, &["runtimes"]).unwrap(), "x");
        assert_eq!(taken, text);
    }

    #[test]
    fn the_last_of_two_equal_keys_counts() {
        let text = "{\"a\": {\"b\": 1}, \"a\": {\"b\": 2}}";
        assert_eq!(&text[find(text, &["a", "b"]).unwrap()], "2");
        assert_eq!(
            set(text, find(text, &["a"]).unwrap(), "b", "3"),
            text.replace('2', "3")
        );
    }

    #[test]
    fn only_an_object_will_do() {
        for (text, line) in [
            ("[]", 1),
            ("{\n\"a\": 1,\n}", 3),
            ("{} x", 1),
            ("{\"a\": NaN}", 1),
        ] {
            let error = check_object(Path::new("/f.json"), text)
                .unwrap_err()
                .to_string();
            assert!(error.starts_with(&format!("/f.json:{line}: ")), "{error}");
        }
    }

    fn value() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<f64>().prop_map(Into::into),
            "[ -~]{0,8}".prop_map(Into::into),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            let list = prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into);
            let object = prop::collection::btree_map("[ -~]{0,4}", inner, 0..4);
            prop_oneof![list, object.prop_map(|o| o.into_iter().collect())]
        })
    }

    proptest! {
        #[test]
        fn every_object_gets_its_bytes_back(
            object in prop::collection::btree_map("[ -~]{0,4}", value(), 1..5),
            pretty: bool,
        ) {
            let object: serde_json::Value = object.into_iter().collect();
            let text = if pretty { format!("{object:#}\n") } else { object.to_string() };
            let edited = set(&text, find(&text, &[]).unwrap(), "boathook", "{}");
            let parsed: serde_json::Value = serde_json::from_str(&edited).unwrap();
            prop_assert_eq!(&parsed["boathook"], &serde_json::json!({}));
            prop_assert_eq!(parsed.as_object().unwrap().len(), object.as_object().unwrap().len() + 1);
            let taken = remove(&edited, find(&edited, &[]).unwrap(), "boathook");
            prop_assert_eq!(taken, text);
        }
    }
}
