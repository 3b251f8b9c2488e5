//! Merges a class file with the files that it extends. The values of the extending file take
//! precedence.

use std::borrow::Cow;
use std::path::Path;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::Error;
use super::json::to_json;
use super::list_changes::ListChanges;
use super::value::Value;
use super::{FileError, deserialize};

/// The key whose value is the class that a file extends.
pub(crate) const EXTENDS_KEY: &str = "extends";

/// Each pair is a key and the key that has the conditions for its value. If a file replaces the
/// value of the file that it extends, the conditions in the extended file do not apply any more.
const CONDITIONAL_KEYS: [(&str, &str); 1] = [("driver_root", "driver_root_require")];

/// One of the files that are merged: a class file, or a file that it extends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layer<'t> {
    pub path: &'t Path,
    pub text: &'t str,
    /// The class that the file extends, which is the next layer. It was found by a text search for
    /// the key [`EXTENDS_KEY`], without parsing the file.
    pub extends: Option<&'t str>,
}

/// Parses and merges files, where each file extends the next one. Tables are merged key by key. Any
/// other value, also a list, replaces the value of the next file. `[add]` and `[remove]` change the
/// lists of the next file. A value of [`CONDITIONAL_KEYS`] also removes the next file's conditions
/// for this value. An error names the file that has the mistake.
pub(crate) fn parse_layers<T: DeserializeOwned>(layers: &[Layer<'_>]) -> Result<T, FileError> {
    merge_layers(layers, |table| deserialize(Value::from_table(table)))
}

/// Merges files as [`parse_layers`] does, and returns the result as JSON, which
/// [`parse_json`](super::parse_json) reads. Returns `None` if JSON cannot express it.
pub(crate) fn convert_to_json(
    layers: &[Layer<'_>],
) -> Result<Option<serde_json::Value>, FileError> {
    merge_layers(layers, |table| Ok(to_json(table.get_ref())))
}

/// Merges files, and calls `use_table` with the merged table. An error names the file that has the
/// mistake.
fn merge_layers<T>(
    layers: &[Layer<'_>],
    use_table: impl FnOnce(Spanned<DeTable<'_>>) -> Result<T, Error>,
) -> Result<T, FileError> {
    // Spaces are put in front of each text, as many as all earlier texts have bytes. So offsets of
    // different files never overlap, and the offset of an error shows which file has the mistake.
    let mut next_start = 0;
    let texts = layers.iter().map(|layer| {
        let start = next_start;
        next_start += layer.text.len() + 1;
        let text = match start {
            0 => Cow::Borrowed(layer.text),
            _ => Cow::Owned(format!("{:start$}{}", "", layer.text)),
        };
        (start, text)
    });
    let texts: Vec<_> = texts.collect();
    let to_file_error = |error: Error| {
        let error = error.details();
        let offset = error.offset.unwrap_or(0);
        let mut candidates = layers.iter().zip(&texts).rev();
        let matching_layer = candidates.find(|(_, (start, _))| *start <= offset);
        let (layer, start) =
            matching_layer.map_or((&layers[0], 0), |(layer, (start, _))| (layer, *start));
        let layer_offset = error.offset.map(|_| (offset - start).min(layer.text.len()));
        FileError::from_parse_error(layer.path, layer.text, layer_offset, error)
    };
    let mut tables = Vec::new();
    for (layer, (_, text)) in layers.iter().zip(&texts) {
        let table = DeTable::parse(text).map_err(|error| to_file_error(error.into()))?;
        let extends = table.get_ref().get(EXTENDS_KEY);
        if extends.map(|name| name.get_ref().as_str()) != layer.extends.map(Some) {
            let message = "write it at the beginning of a line, before all tables, as \
                           extends = \"CLASS\"";
            let (path, text) = (layer.path, layer.text);
            return Err(FileError::for_key(path, text, EXTENDS_KEY, message.into()));
        }
        tables.push(table);
    }
    let mut merged_table: Option<Spanned<DeTable<'_>>> = None;
    for mut table in tables.into_iter().rev() {
        if let Some(mut base) = merged_table {
            let changes = ListChanges::take_from(table.get_mut());
            for (key, conditions_key) in CONDITIONAL_KEYS {
                if table.get_ref().contains_key(key) {
                    base.get_mut().remove(conditions_key);
                }
            }
            add_missing_keys(table.get_mut(), base.into_inner());
            changes.apply(table.get_mut()).map_err(to_file_error)?;
        }
        merged_table = Some(table);
    }
    let merged_table = merged_table.unwrap_or_else(|| Spanned::new(0..0, DeTable::new()));
    use_table(merged_table).map_err(to_file_error)
}

/// Adds the keys of `base` that `table` does not have, with their values. Does the same in nested
/// tables.
fn add_missing_keys<'t>(table: &mut DeTable<'t>, base: DeTable<'t>) {
    for (key, value) in base {
        match table.get_mut(&key).map(Spanned::get_mut) {
            None => {
                table.insert(key, value);
            }
            Some(DeValue::Table(subtable)) => {
                if let DeValue::Table(base_subtable) = value.into_inner() {
                    add_missing_keys(subtable, base_subtable);
                }
            }
            Some(_) => {}
        }
    }
}
