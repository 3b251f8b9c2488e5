//! Writes a merged class file as JSON, and reads it again. Parsing this JSON takes a tenth of the
//! time that parsing the TOML text takes.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, DeserializeOwned, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Map;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::value::{Value, to_i64};

/// The key of a table that stands for an integer. Its value is the text of the number, because an
/// integer of TOML can only be made from a text. No table of a class file has an empty key.
const INTEGER_KEY: &str = "";

/// Returns a table of a class file as JSON. Returns `None` if the table has a number with a
/// fraction, a date or an empty key, which no class file has.
pub(super) fn to_json(table: &DeTable<'_>) -> Option<serde_json::Value> {
    let entries = table.iter().map(|(key, value)| {
        let value = value_to_json(value.get_ref())?;
        let key = key.get_ref().clone().into_owned();
        (key != INTEGER_KEY).then_some((key, value))
    });
    let entries: Option<Map<String, serde_json::Value>> = entries.collect();
    entries.map(serde_json::Value::Object)
}

fn value_to_json(value: &DeValue<'_>) -> Option<serde_json::Value> {
    match value {
        DeValue::String(text) => Some(text.as_ref().into()),
        DeValue::Boolean(is_true) => Some((*is_true).into()),
        DeValue::Integer(number) => {
            let text = to_i64(number)?.to_string();
            Some(serde_json::json!({ INTEGER_KEY: text }))
        }
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
    let JsonValue(value) = serde_json::from_str(json).ok()?;
    let DeValue::Table(table) = value else {
        return None;
    };
    T::deserialize(Value::from_table(without_offset(table))).ok()
}

/// A value of a TOML file that is written as JSON. Its offset in the TOML text is not known.
struct JsonValue<'de>(DeValue<'de>);

fn without_offset<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}

impl<'de> Deserialize<'de> for JsonValue<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor).map(JsonValue)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = DeValue<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of a class file")
    }

    fn visit_bool<E: de::Error>(self, is_true: bool) -> Result<Self::Value, E> {
        Ok(DeValue::Boolean(is_true))
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(DeValue::String(Cow::Borrowed(text)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(DeValue::String(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut array = DeArray::new();
        while let Some(JsonValue(item)) = items.next_element()? {
            array.push(without_offset(item));
        }
        Ok(DeValue::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut table = DeTable::new();
        while let Some((JsonValue(key), JsonValue(value))) = entries.next_entry()? {
            let DeValue::String(key) = key else {
                return Err(de::Error::custom("a key is not a text"));
            };
            if key == INTEGER_KEY {
                return parse_integer(value).ok_or_else(|| de::Error::custom("not an integer"));
            }
            table.insert(without_offset(key), without_offset(value));
        }
        Ok(DeValue::Table(table))
    }
}

/// Returns the integer that a text stands for. The text must be borrowed from the JSON text,
/// because the integer refers to it.
fn parse_integer(text: DeValue<'_>) -> Option<DeValue<'_>> {
    let DeValue::String(Cow::Borrowed(text)) = text else {
        return None;
    };
    let value = DeValue::parse(text).ok()?.into_inner();
    matches!(value, DeValue::Integer(_)).then_some(value)
}
