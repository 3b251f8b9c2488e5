//! Errors about values in TOML files. Their messages use words of TOML, such as "table" and "list",
//! instead of serde's words "map" and "sequence".

use serde::de::{self, Expected, Unexpected};

use super::value::Content;
use crate::similar;

/// An error about a value or key in a TOML file.
///
/// The error is only a pointer, because serde's derived functions return it from hundreds of
/// places, and moving a pointer needs less machine code than moving all fields.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(super) struct Error(Box<ErrorDetails>);

/// The fields of an [`Error`], which is a pointer to them.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct ErrorDetails {
    /// The byte offset of the value or key in the text, if it is known.
    pub(super) offset: Option<usize>,
    pub(super) message: String,
    /// An example of the correct form, if there is one for this value.
    pub(super) example: Option<Example>,
    /// Whether the message already names the key. Then the key is not put in front of the message.
    pub(super) names_key: bool,
    /// The unknown key, if the error is about a key that is not valid in its table.
    pub(super) unknown_key: Option<String>,
    /// The keys that are valid in the table with the unknown key.
    pub(super) known_keys: &'static [&'static str],
}

/// An example of how a value should be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Example {
    /// `key = VALUE`. The text is the value.
    Value(String),
    /// An array of tables, which has a header with two brackets: `[[key]]`.
    ArrayOfTables,
    /// A single table, which has a header with one bracket: `[key]`.
    Table,
}

impl Error {
    #[cold]
    fn new(message: String) -> Self {
        Error(Box::new(ErrorDetails {
            offset: None,
            message,
            example: None,
            names_key: false,
            unknown_key: None,
            known_keys: &[],
        }))
    }

    fn with_key_in_message(message: String) -> Self {
        let mut error = Error::new(message);
        error.0.names_key = true;
        error
    }

    pub(super) fn details(&self) -> &ErrorDetails {
        &self.0
    }

    /// Replaces the message about an unknown key. The new message says that the key belongs to the
    /// top of the file, and not into this table.
    pub(super) fn with_misplaced_key_hint(mut self) -> Self {
        let key = self.0.unknown_key.as_deref().unwrap_or_default();
        self.0.message = format!(
            "unknown key `{key}` in this table; it belongs to the top of the file, before the \
             first line that begins with `[`"
        );
        self
    }

    pub(super) fn with_example(mut self, example: Option<Example>) -> Self {
        self.0.example = example;
        self
    }

    /// Sets the byte offset of the error, unless it is already set. A nested value sets the offset
    /// before the table that contains it, and its offset is more precise.
    pub(super) fn with_offset(mut self, offset: usize) -> Self {
        self.0.offset.get_or_insert(offset);
        self
    }
}

impl de::Error for Error {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Error::new(message.to_string())
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Error::new(describe_mismatch(unexpected, expected))
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Error::new(describe_mismatch(unexpected, expected))
    }

    fn unknown_variant(variant: &str, known_variants: &'static [&'static str]) -> Self {
        let similar_name = similar::find_most_similar(variant, known_variants.iter().copied());
        let hint = similar_name.map_or(String::new(), |name| format!("; did you mean `{name}`?"));
        let variant_list = known_variants.join("`, `");
        Error::new(format!("`{variant}` is none of `{variant_list}`{hint}"))
    }

    fn unknown_field(key: &str, known_keys: &'static [&'static str]) -> Self {
        let hint = match similar::find_most_similar(key, known_keys.iter().copied()) {
            Some(name) => format!(", did you mean `{name}`?"),
            None => format!("; known keys here: {}", known_keys.join(", ")),
        };
        let mut error = Error::with_key_in_message(format!("unknown key `{key}`{hint}"));
        error.0.unknown_key = Some(key.to_owned());
        error.0.known_keys = known_keys;
        error
    }

    fn missing_field(field: &'static str) -> Self {
        Error::new(format!("the key `{field}` is missing"))
    }
}

impl From<toml::de::Error> for Error {
    fn from(error: toml::de::Error) -> Self {
        let new_error = Error::new(error.message().to_owned());
        match error.span() {
            Some(span) => new_error.with_offset(span.start),
            None => new_error,
        }
    }
}

fn describe_mismatch(value: Unexpected<'_>, expected: &dyn Expected) -> String {
    let expected = expected.to_string();
    let expected_form = toml_type_name(&expected);
    format!("must be {expected_form}, and is {}", describe_value(value))
}

/// Describes a value in the words of TOML for a message, such as `the number 5`.
fn describe_value(value: Unexpected<'_>) -> String {
    match value {
        Unexpected::Str(text) => format!("the text {}", quote(text)),
        Unexpected::Signed(number) => format!("the number {number}"),
        Unexpected::Unsigned(number) => format!("the number {number}"),
        Unexpected::Bool(is_true) => is_true.to_string(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "a table".to_owned(),
        other => other.to_string(),
    }
}

/// Returns the TOML name for the type that serde expects, such as `a list` for `a sequence`.
fn toml_type_name(expected: &str) -> &str {
    match expected {
        "a sequence" => "a list",
        "a map" => "a table",
        "a string" | "variant identifier" => "a text in quotes",
        "a boolean" => "true or false",
        "u8" => "a number from 0 to 255",
        "u16" => "a number from 0 to 65535",
        "i64" | "u32" | "u64" | "usize" => "a whole number",
        table if table.starts_with("struct ") => "a table",
        name if name.starts_with("enum ") => "a text in quotes",
        other => other,
    }
}

impl Example {
    /// Returns an example with the same value in the expected form. Returns `None` if the value
    /// needs more than a small change, such as quotes or brackets around it.
    pub(super) fn from_content(content: &Content<'_>, expected: &str) -> Option<Self> {
        let text = match (content, toml_type_name(expected)) {
            (Content::Table(_), "a list") => return Some(Example::ArrayOfTables),
            (Content::List(_), "a table") => return Some(Example::Table),
            (Content::Text(text), "a list") => format!("[{}]", quote(text)),
            (Content::TomlInteger(number), "a list") => format!("[{}]", number.as_str()),
            (Content::List(items), "a text in quotes") => match &items.first()?.content {
                Content::Text(text) => quote(text),
                _ => return None,
            },
            (Content::TomlInteger(number), "a text in quotes") => match number.radix() {
                10 => quote(number.as_str()),
                // A number in octal form without quotes is probably the mode of a node, which must
                // be a text.
                8 => quote(&format!("0{}", number.as_str())),
                _ => return None,
            },
            (Content::Text(text), "true or false") if matches!(&**text, "true" | "false") => {
                text.to_string()
            }
            (Content::Text(text), number) if number.ends_with("number") => {
                text.parse::<u32>().ok()?.to_string()
            }
            _ => return None,
        };
        Some(Example::Value(text))
    }
}

/// Quotes a text as TOML does. A text with quotes or backslashes gets single quotes, so that it
/// needs no escapes.
fn quote(text: &str) -> String {
    if text.contains(['"', '\\']) && !text.contains('\'') {
        format!("'{text}'")
    } else {
        format!("{text:?}")
    }
}
