//! The errors of values in TOML files, in the words of TOML instead of those of serde.

use serde::de::{self, Expected, Unexpected};
use toml::de::DeValue;

use crate::similar;

/// An error of a value or key.
///
/// The error is a pointer, because the functions that serde derives return it from hundreds of
/// places: code that moves a pointer is much shorter than code that moves the fields.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(super) struct Error(Box<Details>);

/// The fields of an [`Error`].
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct Details {
    /// The byte offset in the text, if it is known.
    pub(super) at: Option<usize>,
    pub(super) message: String,
    /// The correct form of the value, if it is likely to be known.
    pub(super) example: Option<Example>,
    /// Whether the message names the key already.
    pub(super) names_key: bool,
    /// The key that is unknown in its table.
    pub(super) unknown_key: Option<String>,
    /// The keys that are known in the table of the unknown key.
    pub(super) known_keys: &'static [&'static str],
}

/// An example of the correct form of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Example {
    /// The text of a value.
    Value(String),
    /// A list of tables. With a header it has two brackets.
    ListOfTables,
    /// One table. With a header it has one bracket.
    Table,
}

impl Error {
    #[cold]
    fn new(message: String) -> Self {
        Error(Box::new(Details {
            at: None,
            message,
            example: None,
            names_key: false,
            unknown_key: None,
            known_keys: &[],
        }))
    }

    /// Creates an error with a message that names the key.
    fn about_key(message: String) -> Self {
        let mut error = Error::new(message);
        error.0.names_key = true;
        error
    }

    pub(super) fn details(&self) -> &Details {
        &self.0
    }

    /// Replaces the hint of an unknown key that is known before the first table of the file.
    pub(super) fn for_misplaced_key(mut self) -> Self {
        let key = self.0.unknown_key.as_deref().unwrap_or_default();
        self.0.message = format!(
            "unknown key `{key}` in this table; it belongs to the top of the file, before the \
             first line that begins with `[`"
        );
        self
    }

    /// Adds the correct form of the value, if it is likely to be known.
    pub(super) fn with_example(mut self, example: Option<Example>) -> Self {
        self.0.example = example;
        self
    }

    /// Sets the offset of the error, unless the error has one already.
    pub(super) fn with_offset(mut self, at: usize) -> Self {
        self.0.at.get_or_insert(at);
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

    fn unknown_variant(variant: &str, known: &'static [&'static str]) -> Self {
        let near = similar::find_most_similar(variant, known.iter().copied());
        let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
        let known = known.join("`, `");
        Error::new(format!("`{variant}` is none of `{known}`{near}"))
    }

    fn unknown_field(unknown: &str, known: &'static [&'static str]) -> Self {
        let hint = match similar::find_most_similar(unknown, known.iter().copied()) {
            Some(near) => format!(", did you mean `{near}`?"),
            None => format!("; known keys here: {}", known.join(", ")),
        };
        let mut error = Error::about_key(format!("unknown key `{unknown}`{hint}"));
        error.0.unknown_key = Some(unknown.to_owned());
        error.0.known_keys = known;
        error
    }

    fn missing_field(field: &'static str) -> Self {
        Error::new(format!("the key `{field}` is missing"))
    }
}

impl From<toml::de::Error> for Error {
    fn from(error: toml::de::Error) -> Self {
        let own = Error::new(error.message().to_owned());
        match error.span() {
            Some(span) => own.with_offset(span.start),
            None => own,
        }
    }
}

fn describe_mismatch(value: Unexpected<'_>, expected: &dyn Expected) -> String {
    let expected = expected.to_string();
    let form = describe_expected(&expected);
    format!("must be {form}, and is {}", describe(value))
}

/// Describes a value of a file.
fn describe(value: Unexpected<'_>) -> String {
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

/// Translates the description of a Rust type, which serde generates, into the words of TOML.
fn describe_expected(expected: &str) -> &str {
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
    /// Returns the value in the expected form, if the form is one that a small change makes.
    pub(super) fn from_value(value: &DeValue<'_>, expected: &str) -> Option<Self> {
        let text = match (value, describe_expected(expected)) {
            (DeValue::Table(_), "a list") => return Some(Example::ListOfTables),
            (DeValue::Array(_), "a table") => return Some(Example::Table),
            (DeValue::String(text), "a list") => format!("[{}]", quote(text)),
            (DeValue::Integer(number), "a list") => format!("[{}]", number.as_str()),
            (DeValue::Array(items), "a text in quotes") => {
                quote(items.iter().next()?.get_ref().as_str()?)
            }
            (DeValue::Integer(number), "a text in quotes") => match number.radix() {
                10 => quote(number.as_str()),
                // A mode is an octal number.
                8 => quote(&format!("0{}", number.as_str())),
                _ => return None,
            },
            (DeValue::String(text), "true or false") if matches!(&**text, "true" | "false") => {
                text.to_string()
            }
            (DeValue::String(text), number) if number.ends_with("number") => {
                text.parse::<u32>().ok()?.to_string()
            }
            _ => return None,
        };
        Some(Example::Value(text))
    }
}

/// Quotes a text as TOML does. A text with marks that TOML escapes is quoted literally.
fn quote(text: &str) -> String {
    if text.contains(['"', '\\']) && !text.contains('\'') {
        format!("'{text}'")
    } else {
        format!("{text:?}")
    }
}
