//! Parses class files and config.toml strictly. An error names the file, the line and the key. For
//! an unknown key it also names the most similar known key.

mod deserializer;
mod error;
mod json;
mod layers;
mod list_changes;
mod value;

use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use toml::de::DeTable;

use error::{Error, ErrorDetails, Example};
pub(crate) use json::parse_json;
pub(crate) use layers::{EXTENDS_KEY, Layer, convert_to_json, parse_layers};
use value::Value;

/// An error in a class file or in config.toml. It has the path of the file and, if they are known,
/// the line and the key. The error is only a pointer, because many functions return it, and moving
/// a pointer needs little machine code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FileError(Box<FileErrorDetails>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct FileErrorDetails {
    path: PathBuf,
    line: Option<usize>,
    key: Option<String>,
    message: String,
}

impl fmt::Display for FileErrorDetails {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        f.write_str(": ")?;
        if let Some(key) = &self.key {
            write!(f, "{key}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl From<FileErrorDetails> for FileError {
    fn from(details: FileErrorDetails) -> Self {
        FileError(Box::new(details))
    }
}

impl FileError {
    /// Returns the name of the class that the file describes: the file name without `.toml`.
    pub fn class_name(&self) -> Option<String> {
        let stem = self.path().file_stem()?;
        Some(stem.to_string_lossy().into_owned())
    }
}

/// An error about values that contradict each other, although each value alone is valid. The error
/// is only a pointer, because many functions return it, and moving a pointer needs little machine
/// code.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.message)]
pub(crate) struct RuleViolation(Box<RuleDetails>);

#[derive(Debug)]
struct RuleDetails {
    message: String,
    /// A text that is searched in the file to find the line of the error, such as a key or a value.
    searched_text: Option<String>,
    /// The table that contains the error: its header, and its position (from 0) among the tables
    /// with this header. Only this table is searched, because elsewhere the same text may be
    /// correct.
    table: Option<(&'static str, usize)>,
}

impl RuleViolation {
    pub(crate) fn new<'c>(
        searched_text: impl Into<Option<&'c str>>,
        message: impl Into<String>,
    ) -> Self {
        RuleViolation(Box::new(RuleDetails {
            message: message.into(),
            searched_text: searched_text.into().map(str::to_owned),
            table: None,
        }))
    }

    /// Limits the search for the line of the error to one table. `number` is the table's position,
    /// from 0, among the tables with the header `header`.
    pub(crate) fn in_table(mut self, header: &'static str, number: usize) -> Self {
        self.0.table = Some((header, number));
        self
    }
}

impl FileError {
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    pub fn whole(path: &Path, message: impl Into<String>) -> Self {
        FileErrorDetails {
            path: path.into(),
            line: None,
            key: None,
            message: message.into(),
        }
        .into()
    }

    /// Creates an error about the value of `key`. The error names the first line of `text` that
    /// begins with `key`.
    pub(crate) fn for_key(path: &Path, text: &str, key: &str, message: String) -> Self {
        let has_key = |line: &str| line.trim_start().starts_with(key);
        FileErrorDetails {
            path: path.into(),
            line: text.lines().position(has_key).map(|line| line + 1),
            key: Some(key.to_owned()),
            message,
        }
        .into()
    }

    /// Creates an error for a broken rule. The error names the first file that contains the
    /// searched text, and its line there.
    pub(crate) fn from_violation(layers: &[Layer<'_>], rule: &RuleViolation) -> Self {
        let find_in_table = |text: &str| {
            let (header, number) = rule.0.table?;
            let (start, _) = text.match_indices(header).nth(number)?;
            Some(start + find_error_text(&text[start..], rule.0.searched_text.as_deref()?)?)
        };
        // A table that is written inline has no header. In this case the whole file is searched.
        let find_in_text = |text: &str| find_error_text(text, rule.0.searched_text.as_deref()?);
        let find_in_layers = |find: &dyn Fn(&str) -> Option<usize>| {
            let mut layers = layers.iter();
            layers.find_map(|layer| Some((layer, find(layer.text)?)))
        };
        let location = find_in_layers(&find_in_table).or_else(|| find_in_layers(&find_in_text));
        FileErrorDetails {
            path: location
                .map_or(layers[0].path, |(layer, _)| layer.path)
                .into(),
            line: location.map(|(layer, offset)| line_number(layer.text, offset)),
            key: None,
            message: rule.to_string(),
        }
        .into()
    }

    /// Creates an error from the parser's error about a key or value. `offset` is the byte offset
    /// of this key or value in the file's text.
    fn from_parse_error(
        path: &Path,
        text: &str,
        offset: Option<usize>,
        error: &ErrorDetails,
    ) -> Self {
        let mut message = first_line(&error.message);
        let key = offset
            .filter(|_| !error.names_key)
            .and_then(|offset| find_key_before(text, offset));
        if let Some(example) = &error.example {
            message += "; write ";
            message += &write_example(
                example,
                key.as_deref(),
                offset.is_some_and(|offset| is_whole_value(text, offset)),
            );
        }
        FileErrorDetails {
            path: path.into(),
            line: offset.map(|offset| line_number(text, offset)),
            message,
            key,
        }
        .into()
    }
}

/// Returns whether the value at the byte offset `offset` directly follows `=`, so that it is not an
/// item of a list.
fn is_whole_value(text: &str, offset: usize) -> bool {
    text.get(..offset)
        .is_some_and(|text_before| text_before.trim_end().ends_with('='))
}

/// Returns an example of the line that a user should write for a key. Returns only the value if the
/// key is not known, or if the value is an item of a list.
fn write_example(example: &Example, key: Option<&str>, is_whole_value: bool) -> String {
    let header = key.and_then(|key| key.strip_prefix('['));
    if let Some(header) = header {
        let name = header.trim_matches(['[', ']']);
        return match example {
            Example::ArrayOfTables => format!("[[{name}]]"),
            Example::Table => format!("[{name}]"),
            Example::Value(value) => format!("{name} = {value}"),
        };
    }
    let value = match example {
        Example::ArrayOfTables => "[{ ... }]",
        Example::Table => "{ ... }",
        Example::Value(value) => value,
    };
    match key.filter(|_| is_whole_value) {
        Some(key) => format!("{key} = {value}"),
        None => value.to_owned(),
    }
}

/// Parses `text`, the whole text of the file at `path`. The error names the file and the line.
pub fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, FileError> {
    let table = DeTable::parse(text).map_err(Error::from);
    let result = table.and_then(|table| deserialize(Value::from_table(table)));
    result.map_err(|error| {
        let error = error.details();
        let offset = error.offset.map(|offset| offset.min(text.len()));
        FileError::from_parse_error(path, text, offset, error)
    })
}

/// Deserializes a file. An error about an unknown key in a table says if the key is valid before
/// the first table of the file.
fn deserialize<T: DeserializeOwned>(file: Value<'_>) -> Result<T, Error> {
    let add_hint = |error: Error| {
        let unknown_key = error.details().unknown_key.as_deref();
        if unknown_key.is_none_or(|key| !list_known_keys::<T>().contains(&key)) {
            return error;
        }
        error.with_misplaced_key_hint()
    };
    T::deserialize(file).map_err(add_hint)
}

/// Returns the keys that a file of the type `T` may have before its first table. Only the code that
/// serde generates has this list, so a file with an unknown key is parsed, and the list is taken
/// from the error.
fn list_known_keys<T: DeserializeOwned>() -> &'static [&'static str] {
    let table = DeTable::parse("\"\" = 0").map_err(Error::from);
    let result = table.and_then(|table| T::deserialize(Value::from_table(table)));
    result.map_or_else(|error| error.details().known_keys, |_| &[])
}

/// Returns the byte offset of a key or value in the text of a file. Prefers a place where the text
/// is a key or a complete string. A place in a comment is the last choice.
fn find_error_text(text: &str, searched_text: &str) -> Option<usize> {
    let rank = |offset: usize| {
        let line_start = text[..offset].rfind('\n').map_or(0, |end| end + 1);
        let (text_before, text_after) = (
            &text[line_start..offset],
            &text[offset + searched_text.len()..],
        );
        let is_key =
            text_before.trim_end().is_empty() || text_before.trim_end().ends_with(['{', ',']);
        let is_key = is_key && text_after.trim_start_matches(' ').starts_with('=');
        let is_string = text_before.ends_with(['"', '\'']) && text_after.starts_with(['"', '\'']);
        (text_before.contains('#'), !(is_key || is_string))
    };
    let offsets = text.match_indices(searched_text).map(|(offset, _)| offset);
    offsets.min_by_key(|offset| rank(*offset))
}

fn line_number(text: &str, offset: usize) -> usize {
    let bytes_before = text.as_bytes().iter().take(offset);
    bytes_before.filter(|byte| **byte == b'\n').count() + 1
}

fn first_line(message: &str) -> String {
    message
        .lines()
        .next()
        .unwrap_or_default()
        .trim_end_matches('.')
        .to_owned()
}

/// Returns the key whose value begins at the byte offset `offset`, for example `path` in `path =
/// "x"`. If a table begins at `offset`, returns the header of the table.
fn find_key_before(text: &str, offset: usize) -> Option<String> {
    let text_from_offset = text.get(offset..)?;
    if text_from_offset.starts_with('[') && (offset == 0 || text[..offset].ends_with('\n')) {
        return text_from_offset.lines().next().map(str::to_owned);
    }
    let (line, _) = text.get(..offset)?.rsplit('\n').next()?.rsplit_once('=')?;
    let is_bare = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let key = line.trim_end().rsplit(|c: char| !is_bare(c)).next()?;
    (!key.is_empty()).then(|| key.to_owned())
}
