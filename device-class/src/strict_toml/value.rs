//! The value of a TOML file, before it is converted to a Rust type.

use std::borrow::Cow;

use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

/// A value of a TOML file, with its byte offset in the text. Errors need the offset to name the
/// line.
pub(super) struct Value<'de> {
    pub(super) offset: usize,
    pub(super) content: Content<'de>,
}

/// The content of a [`Value`]. Tables are vectors of entries and not maps, because each table is
/// read only once, from its first entry to its last one.
pub(super) enum Content<'de> {
    Text(Cow<'de, str>),
    Boolean(bool),
    /// An integer of a TOML text.
    TomlInteger(DeInteger<'de>),
    /// An integer of a class index.
    JsonInteger(i64),
    List(Vec<Value<'de>>),
    /// The keys, which are texts, and their values.
    Table(Vec<(Value<'de>, Value<'de>)>),
    /// A number with a fraction, which no key accepts.
    Fraction,
    /// A date, which no key accepts.
    Date,
}

impl<'de> Value<'de> {
    pub(super) fn from_table(table: Spanned<DeTable<'de>>) -> Self {
        let offset = table.span().start;
        Value::new(offset, DeValue::Table(table.into_inner()).into())
    }

    pub(super) fn new(offset: usize, content: Content<'de>) -> Self {
        Value { offset, content }
    }

    /// Converts a string `s` to the table `{ main_key = s }`. Any other value stays the same.
    pub(super) fn with_main_key(self, main_key: &'static str) -> Self {
        let Value { offset, content } = self;
        let content = match content {
            Content::Text(_) => {
                let key = Content::Text(Cow::Borrowed(main_key));
                Content::Table(vec![(Value::new(offset, key), Value::new(offset, content))])
            }
            other => other,
        };
        Value { offset, content }
    }
}

impl<'de> From<Spanned<DeValue<'de>>> for Value<'de> {
    fn from(value: Spanned<DeValue<'de>>) -> Self {
        Value::new(value.span().start, value.into_inner().into())
    }
}

impl<'de> From<DeValue<'de>> for Content<'de> {
    fn from(value: DeValue<'de>) -> Self {
        match value {
            DeValue::String(text) => Content::Text(text),
            DeValue::Integer(number) => Content::TomlInteger(number),
            DeValue::Float(_) => Content::Fraction,
            DeValue::Boolean(is_true) => Content::Boolean(is_true),
            DeValue::Datetime(_) => Content::Date,
            DeValue::Array(items) => Content::List(items.into_iter().map(Value::from).collect()),
            DeValue::Table(table) => {
                let entries = table.into_iter().map(|(key, value)| {
                    let offset = key.span().start;
                    let key = Value::new(offset, Content::Text(key.into_inner()));
                    (key, Value::from(value))
                });
                Content::Table(entries.collect())
            }
        }
    }
}

pub(super) fn to_i64(number: &DeInteger<'_>) -> Option<i64> {
    i64::from_str_radix(number.as_str(), number.radix()).ok()
}
