//! Writes a merged class file as JSON, and reads it again. Parsing this JSON takes a tenth of the
//! time of parsing the TOML text.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, DeserializeOwned, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Map;
use toml::de::{DeTable, DeValue};

use super::value::{Content, Value, to_i64};

/// Returns a table of a class file as JSON. Returns `None` if the table has a number with a
/// fraction or a date, which no class file has.
pub(super) fn to_json(table: &DeTable<'_>) -> Option<serde_json::Value> {
    let entries = table.iter().map(|(key, value)| {
        let value = value_to_json(value.get_ref())?;
        Some((key.get_ref().clone().into_owned(), value))
    });
    let entries: Option<Map<String, serde_json::Value>> = entries.collect();
    entries.map(serde_json::Value::Object)
}

fn value_to_json(value: &DeValue<'_>) -> Option<serde_json::Value> {
    match value {
        DeValue::String(text) => Some(text.as_ref().into()),
        DeValue::Boolean(is_true) => Some((*is_true).into()),
        DeValue::Integer(number) => Some(to_i64(number)?.into()),
        DeValue::Array(items) => items
            .iter()
            .map(|item| value_to_json(item.get_ref()))
            .collect(),
        DeValue::Table(table) => to_json(table),
        DeValue::Float(_) | DeValue::Datetime(_) => None,
    }
}

/// Parses a table that [`to_json`] wrote. Returns `None` if the text is damaged. Only the types of
/// the values are checked, because the class file was checked before it was written.
pub(crate) fn parse_json<T: DeserializeOwned>(json: &str) -> Option<T> {
    let value: Value = serde_json::from_str(json).ok()?;
    T::deserialize(value).ok()
}

/// Creates a value of a TOML file from JSON. Its offset in the TOML text is not known.
impl<'de> Deserialize<'de> for Value<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let content = deserializer.deserialize_any(ContentVisitor)?;
        Ok(Value::new(0, content))
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of a class file")
    }

    fn visit_bool<E: de::Error>(self, is_true: bool) -> Result<Self::Value, E> {
        Ok(Content::Boolean(is_true))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Content::JsonInteger(number))
    }

    /// Accepts an integer that is not negative, which serde_json passes as a `u64`.
    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
        let number = i64::try_from(number).map_err(de::Error::custom)?;
        Ok(Content::JsonInteger(number))
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Content::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Content::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Content::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut table = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            table.push(entry);
        }
        Ok(Content::Table(table))
    }
}
