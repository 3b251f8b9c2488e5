//! Strict parsing of class files and config.toml: an error names the file, the
//! line, the key and, for an unknown key, the most similar known one.

mod error;
mod layers;
mod list_changes;
mod value;

use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use toml::de::DeTable;

use error::{Details, Error, Example};
pub(crate) use layers::{EXTENDS, Layer, parse_layers};
use value::Value;

/// An error in a class file or config.toml, with the file and, if they are known, the line and the
/// key. It is a pointer, so that the code that returns it from many places is short.
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
    /// Returns the name of the class that the file describes: the file's name without
    /// `.toml`.
    pub fn class_name(&self) -> Option<String> {
        let stem = self.path().file_stem()?;
        Some(stem.to_string_lossy().into_owned())
    }
}

/// An error about several values of a file that contradict each other, although each value alone is
/// valid. It is a pointer, so that the code that returns it from many places is short.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.message)]
pub(crate) struct BrokenRule(Box<RuleDetails>);

#[derive(Debug)]
struct RuleDetails {
    message: String,
    /// The text to search for in the file to find the line of the error.
    culprit: Option<String>,
    /// The table with the error: its header, and its number among the tables with this header.
    /// The search is limited to this table, because the same text may be right in another one.
    table: Option<(&'static str, usize)>,
}

impl BrokenRule {
    pub(crate) fn new<'c>(culprit: impl Into<Option<&'c str>>, message: impl Into<String>) -> Self {
        BrokenRule(Box::new(RuleDetails {
            message: message.into(),
            culprit: culprit.into().map(str::to_owned),
            table: None,
        }))
    }

    /// Limits the search for the line of the error to one table: the one with this number among
    /// the tables with this header.
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

    /// Creates an error about the value of the first key `key` at the beginning of a line.
    pub(crate) fn of_key(path: &Path, text: &str, key: &str, message: String) -> Self {
        let begins = |line: &str| line.trim_start().starts_with(key);
        FileErrorDetails {
            path: path.into(),
            line: text.lines().position(begins).map(|line| line + 1),
            key: Some(key.to_owned()),
            message,
        }
        .into()
    }

    /// Creates an error for a broken rule, with the file and line that have the culprit.
    pub(crate) fn rule(layers: &[Layer<'_>], rule: &BrokenRule) -> Self {
        let in_table = |text: &str| {
            let (header, number) = rule.0.table?;
            let (begin, _) = text.match_indices(header).nth(number)?;
            Some(begin + find_culprit(&text[begin..], rule.0.culprit.as_deref()?)?)
        };
        // A table may be written inline, without a header. Then the whole text is searched.
        let anywhere = |text: &str| find_culprit(text, rule.0.culprit.as_deref()?);
        let find = |find: &dyn Fn(&str) -> Option<usize>| {
            let mut layers = layers.iter();
            layers.find_map(|layer| Some((layer, find(layer.text)?)))
        };
        let found = find(&in_table).or_else(|| find(&anywhere));
        FileErrorDetails {
            path: found.map_or(layers[0].path, |(layer, _)| layer.path).into(),
            line: found.map(|(layer, at)| line_of(layer.text, at)),
            key: None,
            message: rule.to_string(),
        }
        .into()
    }

    /// Creates an error of a value or key, at the byte offset `at` in the file's text.
    fn from_parse_error(path: &Path, text: &str, at: Option<usize>, error: &Details) -> Self {
        let mut message = first_line(&error.message);
        let key = at
            .filter(|_| !error.names_key)
            .and_then(|at| find_key_before(text, at));
        if let Some(example) = &error.example {
            message += "; write ";
            message += &write_example(
                example,
                key.as_deref(),
                at.is_some_and(|at| is_whole(text, at)),
            );
        }
        FileErrorDetails {
            path: path.into(),
            line: at.map(|at| line_of(text, at)),
            message,
            key,
        }
        .into()
    }
}

/// Returns whether the value at the byte offset `at` is the whole value of its key, and not an item
/// of a list.
fn is_whole(text: &str, at: usize) -> bool {
    text.get(..at)
        .is_some_and(|before| before.trim_end().ends_with('='))
}

/// Returns the line that a user should write for a key, or only the value if the key is not known.
fn write_example(example: &Example, key: Option<&str>, is_whole: bool) -> String {
    let header = key.and_then(|key| key.strip_prefix('['));
    if let Some(header) = header {
        let name = header.trim_matches(['[', ']']);
        return match example {
            Example::ListOfTables => format!("[[{name}]]"),
            Example::Table => format!("[{name}]"),
            Example::Value(value) => format!("{name} = {value}"),
        };
    }
    let value = match example {
        Example::ListOfTables => "[{ ... }]",
        Example::Table => "{ ... }",
        Example::Value(value) => value,
    };
    match key.filter(|_| is_whole) {
        Some(key) => format!("{key} = {value}"),
        None => value.to_owned(),
    }
}

/// Parses the whole text of the file at `path`.
pub fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, FileError> {
    let table = DeTable::parse(text).map_err(Error::from);
    let parsed = table.and_then(|table| deserialize(Value::of_table(table)));
    parsed.map_err(|error| {
        let error = error.details();
        let at = error.at.map(|at| at.min(text.len()));
        FileError::from_parse_error(path, text, at, error)
    })
}

/// Deserializes a file. The error of a key that stands in a table and belongs before all tables
/// says so.
fn deserialize<T: DeserializeOwned>(file: Value<'_>) -> Result<T, Error> {
    let with_hint = |error: Error| {
        let unknown = error.details().unknown_key.as_deref();
        if unknown.is_none_or(|key| !list_keys::<T>().contains(&key)) {
            return error;
        }
        error.for_misplaced_key()
    };
    T::deserialize(file).map_err(with_hint)
}

/// Returns the keys that a file of the type `T` may have before its first table. They are known to
/// the deserializer alone, which names them in the error of an unknown key.
fn list_keys<T: DeserializeOwned>() -> &'static [&'static str] {
    let probe = DeTable::parse("\"\" = 0").map_err(Error::from);
    let read = probe.and_then(|table| T::deserialize(Value::of_table(table)));
    read.map_or_else(|error| error.details().known_keys, |_| &[])
}

/// Returns the byte offset of a key or value in a text. Where the key is set or the value is a whole
/// string is preferred to any other place, and a comment comes last.
fn find_culprit(text: &str, culprit: &str) -> Option<usize> {
    let rank = |at: usize| {
        let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
        let (before, after) = (&text[line..at], &text[at + culprit.len()..]);
        let is_key = before.trim_end().is_empty() || before.trim_end().ends_with(['{', ',']);
        let is_key = is_key && after.trim_start_matches(' ').starts_with('=');
        let is_string = before.ends_with(['"', '\'']) && after.starts_with(['"', '\'']);
        (before.contains('#'), !(is_key || is_string))
    };
    let places = text.match_indices(culprit).map(|(at, _)| at);
    places.min_by_key(|at| rank(*at))
}

fn line_of(text: &str, at: usize) -> usize {
    let before = text.as_bytes().iter().take(at);
    before.filter(|byte| **byte == b'\n').count() + 1
}

fn first_line(message: &str) -> String {
    message
        .lines()
        .next()
        .unwrap_or_default()
        .trim_end_matches('.')
        .to_owned()
}

/// Returns the key whose value begins at the byte offset `at`, for example `path` in
/// `path = "x"`, or the header of a table that begins there.
fn find_key_before(text: &str, at: usize) -> Option<String> {
    let rest = text.get(at..)?;
    if rest.starts_with('[') && (at == 0 || text[..at].ends_with('\n')) {
        return rest.lines().next().map(str::to_owned);
    }
    let (line, _) = text.get(..at)?.rsplit('\n').next()?.rsplit_once('=')?;
    let is_bare = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let key = line.trim_end().rsplit(|c: char| !is_bare(c)).next()?;
    (!key.is_empty()).then(|| key.to_owned())
}
