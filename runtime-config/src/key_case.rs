//! Refuses configuration files with keys whose case differs from that of the engine's documentation.
//!
//! The engines' parsers ignore the case of keys: Go's encoding/json (Docker), BurntSushi/toml
//! (podman, CRI-O) and go-toml (containerd; its version 1 accepts only some spellings). This crate
//! compares keys exactly, so it would overlook a key in another case. Such a key could set a default
//! runtime that isolates containers better than runc, and `--set-default` would lose that isolation.
//! The same check finds two keys that differ only in case, because the parsers disagree about which
//! of them counts.

use std::ops::Range;
use std::path::Path;

use toml_edit::{Document, Item, TableLike};

use crate::error::Error;
use crate::json_text;
use crate::toml_text::line_of;

/// The wildcard for one key in the path of a setting, such as `runtimes.*.path`.
const ANY: &str = "*";

/// A key that an engine may read differently from this crate: its case differs from the
/// documentation, or the key occurs twice.
struct UnclearKey {
    found: String,
    documented: &'static str,
    /// The position in the text, in bytes.
    offset: usize,
}

impl UnclearKey {
    fn refuse(&self, path: &Path, text: &str) -> Error {
        let Self {
            found, documented, ..
        } = self;
        let problem = if found == documented {
            format!("the key \"{found}\" is there twice: take one out")
        } else {
            format!("the engine may read the key \"{found}\" as \"{documented}\": write it so")
        };
        let line = line_of(text, self.offset);
        Error::new_at_line(path, line, problem + ", or leave --set-default out")
    }
}

/// Refuses a TOML file with a key that equals one of `settings` only if case is ignored.
pub(crate) fn check_toml(
    path: &Path,
    text: &str,
    doc: &Document<&str>,
    settings: &[&'static str],
) -> Result<(), Error> {
    let unclear = settings
        .iter()
        .find_map(|setting| find_in_table(doc.as_item(), setting));
    unclear.map_or(Ok(()), |key| Err(key.refuse(path, text)))
}

/// Refuses a JSON file with a key that equals one of `settings` only if case is ignored, or with
/// a key of `settings` that occurs twice. Go's encoding/json merges objects under equal keys,
/// and this crate reads only one of them.
pub(crate) fn check_json(path: &Path, text: &str, settings: &[&'static str]) -> Result<(), Error> {
    let whole = json_text::find(text, &[]).unwrap_or_default();
    let unclear = settings
        .iter()
        .find_map(|setting| find_in_object(text, whole.clone(), setting));
    unclear.map_or(Ok(()), |key| Err(key.refuse(path, text)))
}

fn find_in_table(item: &Item, setting: &'static str) -> Option<UnclearKey> {
    let (documented, rest) = split_first_key(setting)?;
    let table: &dyn TableLike = item.as_table_like()?;
    table.iter().find_map(|(found, inner)| {
        if documented == ANY || found == documented {
            return find_in_table(inner, rest);
        }
        let span = table.get_key_value(found).and_then(|(key, _)| key.span());
        is_same_ignoring_case(found, documented).then(|| UnclearKey {
            found: found.to_owned(),
            documented,
            offset: span.map_or(0, |span| span.start),
        })
    })
}

fn find_in_object(text: &str, object: Range<usize>, setting: &'static str) -> Option<UnclearKey> {
    let (documented, rest) = split_first_key(setting)?;
    let mut seen = false;
    for (found, value) in json_text::members(text, object) {
        let is_exact = found == documented;
        if documented == ANY || is_exact && !seen {
            seen = true;
            if let Some(unclear) = find_in_object(text, value, rest) {
                return Some(unclear);
            }
        } else if is_same_ignoring_case(&found, documented) {
            return Some(UnclearKey {
                found,
                documented,
                offset: value.start,
            });
        }
    }
    None
}

/// Splits the path of a setting into its first key and the rest, which is empty after the last
/// key. Returns `None` for an empty path.
fn split_first_key(setting: &'static str) -> Option<(&'static str, &'static str)> {
    let split = setting.split_once('.').unwrap_or((setting, ""));
    (!setting.is_empty()).then_some(split)
}

/// Compares two keys as Go's `strings.EqualFold` does. The `documented` key is ASCII. Two
/// characters outside of ASCII fold to ASCII letters: U+017F to `s` and U+212A to `k`.
fn is_same_ignoring_case(found: &str, documented: &str) -> bool {
    let found = found.replace('\u{17f}', "s").replace('\u{212a}', "k");
    found.eq_ignore_ascii_case(documented)
}
