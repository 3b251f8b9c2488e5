//! Refuses configuration files if a key is written in another case than in the engine's
//! documentation.
//!
//! The engines' parsers ignore the case of keys: Go's encoding/json (Docker), BurntSushi/toml
//! (podman, CRI-O) and go-toml (containerd; its version 1 accepts only some spellings). This crate
//! compares keys exactly, so it would overlook a key in another case. Such a key could set a
//! default runtime that isolates containers better than runc, and `--set-default` would lose that
//! isolation.
//!
//! The same check finds two keys that differ only in case. The parsers disagree about which of
//! these keys counts.

use std::ops::Range;
use std::path::Path;

use toml_edit::{Document, Item, TableLike};

use crate::error::Error;
use crate::json_text;
use crate::toml_text::find_line_number;

/// The wildcard in the path of a setting, such as `runtimes.*.path`. It stands for any single key.
const KEY_WILDCARD: &str = "*";

/// A key that an engine may read differently from this crate, because its case differs from that of
/// the documentation, or because it occurs twice.
struct AmbiguousKey {
    found_key: String,
    documented_key: &'static str,
    /// The byte offset of the key in the text.
    offset: usize,
}

impl AmbiguousKey {
    /// Returns the error for the file `path`, in which the key was found.
    fn to_error(&self, path: &Path, text: &str) -> Error {
        let Self {
            found_key,
            documented_key,
            ..
        } = self;
        let problem = if found_key == documented_key {
            format!("the key \"{found_key}\" is there twice: take one out")
        } else {
            format!(
                "the engine may read the key \"{found_key}\" as \"{documented_key}\": write it so"
            )
        };
        let line = find_line_number(text, self.offset);
        Error::new_at_line(path, line, problem + ", or use --no-set-default")
    }
}

/// Returns an error if a TOML file has a key that differs only in case from a key of `settings`.
pub(crate) fn refuse_ambiguous_toml_keys(
    path: &Path,
    text: &str,
    doc: &Document<&str>,
    settings: &[&'static str],
) -> Result<(), Error> {
    let ambiguous_key = settings
        .iter()
        .find_map(|setting| find_ambiguous_toml_key(doc.as_item(), setting));
    ambiguous_key.map_or(Ok(()), |key| Err(key.to_error(path, text)))
}

/// Returns an error if a JSON file has a key that differs only in case from a key of `settings`, or
/// if a key of `settings` occurs twice. If a key occurs twice, Go's encoding/json merges the two
/// objects, but this crate reads only one of them.
pub(crate) fn refuse_ambiguous_json_keys(
    path: &Path,
    text: &str,
    settings: &[&'static str],
) -> Result<(), Error> {
    let top_object = json_text::find_value(text, &[]).unwrap_or_default();
    let ambiguous_key = settings
        .iter()
        .find_map(|setting| find_ambiguous_json_key(text, top_object.clone(), setting));
    ambiguous_key.map_or(Ok(()), |key| Err(key.to_error(path, text)))
}

fn find_ambiguous_toml_key(item: &Item, setting: &'static str) -> Option<AmbiguousKey> {
    let (documented_key, inner_setting) = split_first_key(setting)?;
    let table: &dyn TableLike = item.as_table_like()?;
    table.iter().find_map(|(found_key, value)| {
        if documented_key == KEY_WILDCARD || found_key == documented_key {
            return find_ambiguous_toml_key(value, inner_setting);
        }
        let span = table
            .get_key_value(found_key)
            .and_then(|(key, _)| key.span());
        equals_ignoring_case(found_key, documented_key).then(|| AmbiguousKey {
            found_key: found_key.to_owned(),
            documented_key,
            offset: span.map_or(0, |span| span.start),
        })
    })
}

fn find_ambiguous_json_key(
    text: &str,
    object: Range<usize>,
    setting: &'static str,
) -> Option<AmbiguousKey> {
    let (documented_key, inner_setting) = split_first_key(setting)?;
    let mut is_seen = false;
    for (found_key, value) in json_text::list_members(text, object) {
        let is_exact = found_key == documented_key;
        if documented_key == KEY_WILDCARD || is_exact && !is_seen {
            is_seen = true;
            if let Some(ambiguous_key) = find_ambiguous_json_key(text, value, inner_setting) {
                return Some(ambiguous_key);
            }
        } else if equals_ignoring_case(&found_key, documented_key) {
            return Some(AmbiguousKey {
                found_key,
                documented_key,
                offset: value.start,
            });
        }
    }
    None
}

/// Splits the path of a setting into its first key and the rest. The rest is empty if there is only
/// one key. Returns `None` if the path is empty.
fn split_first_key(setting: &'static str) -> Option<(&'static str, &'static str)> {
    let key_and_rest = setting.split_once('.').unwrap_or((setting, ""));
    (!setting.is_empty()).then_some(key_and_rest)
}

/// Compares two keys as Go's `strings.EqualFold` does. `documented_key` is ASCII. If case is
/// ignored, two characters outside of ASCII equal a letter: U+017F equals `s`, and U+212A equals
/// `k`.
fn equals_ignoring_case(found_key: &str, documented_key: &str) -> bool {
    let ascii_key = found_key.replace('\u{17f}', "s").replace('\u{212a}', "k");
    ascii_key.eq_ignore_ascii_case(documented_key)
}
