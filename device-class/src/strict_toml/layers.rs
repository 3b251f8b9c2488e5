//! Merges a file with the files that it extends. Values of the extending file win.

use std::borrow::Cow;
use std::path::Path;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::Error;
use super::list_changes::ListChanges;
use super::value::Value;
use super::{FileError, deserialize};

/// The key by which a file names the class that it extends.
pub(crate) const EXTENDS: &str = "extends";

/// One of several files that are merged into one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layer<'t> {
    pub path: &'t Path,
    pub text: &'t str,
    /// The value of the key [`EXTENDS`] by which the next layer was found, before the file was
    /// parsed.
    pub extends: Option<&'t str>,
}

/// Parses files of which each extends the next one: tables are merged key by key, and any
/// other value, also a list, replaces that of the next file. Lists are also changed by `[add]` and
/// `[remove]`. An error names the file that is wrong.
pub(crate) fn parse_layers<T: DeserializeOwned>(layers: &[Layer<'_>]) -> Result<T, FileError> {
    // The offsets of each text continue after those of the text before it, so that an offset
    // identifies the file.
    let mut end = 0;
    let texts = layers.iter().map(|layer| {
        let begin = end;
        end += layer.text.len() + 1;
        let text = match begin {
            0 => Cow::Borrowed(layer.text),
            _ => Cow::Owned(format!("{:begin$}{}", "", layer.text)),
        };
        (begin, text)
    });
    let texts: Vec<_> = texts.collect();
    let failed = |error: Error| {
        let error = error.details();
        let at = error.at.unwrap_or(0);
        let mut places = layers.iter().zip(&texts).rev();
        let place = places.find(|(_, (begin, _))| *begin <= at);
        let (layer, begin) = place.map_or((&layers[0], 0), |(layer, (begin, _))| (layer, *begin));
        let at = error.at.map(|_| (at - begin).min(layer.text.len()));
        FileError::from_parse_error(layer.path, layer.text, at, error)
    };
    let mut tables = Vec::new();
    for (layer, (_, text)) in layers.iter().zip(&texts) {
        let table = DeTable::parse(text).map_err(|error| failed(error.into()))?;
        let extends = table.get_ref().get(EXTENDS);
        if extends.map(|name| name.get_ref().as_str()) != layer.extends.map(Some) {
            let message = "write it at the beginning of a line, before all tables, as \
                           extends = \"CLASS\"";
            let (path, text) = (layer.path, layer.text);
            return Err(FileError::of_key(path, text, EXTENDS, message.into()));
        }
        tables.push(table);
    }
    let mut merged: Option<Spanned<DeTable<'_>>> = None;
    for mut table in tables.into_iter().rev() {
        if let Some(base) = merged {
            let changes = ListChanges::take(table.get_mut());
            add_missing_keys(table.get_mut(), base.into_inner());
            changes.apply(table.get_mut()).map_err(failed)?;
        }
        merged = Some(table);
    }
    let merged = merged.unwrap_or_else(|| Spanned::new(0..0, DeTable::new()));
    deserialize(Value::of_table(merged)).map_err(failed)
}

/// Adds the keys of `base` that the table lacks, also in nested tables.
fn add_missing_keys<'t>(table: &mut DeTable<'t>, base: DeTable<'t>) {
    for (key, value) in base {
        match table.get_mut(&key).map(Spanned::get_mut) {
            None => {
                table.insert(key, value);
            }
            Some(DeValue::Table(own)) => {
                if let DeValue::Table(of_base) = value.into_inner() {
                    add_missing_keys(own, of_base);
                }
            }
            Some(_) => {}
        }
    }
}
