//! Implements serde's `Deserializer` for a value of a TOML file.
//!
//! Each Rust type accepts only one form of value. For example, a struct is read from a table, and
//! never from a list of its fields. [`toml::Deserializer`] accepts every form for every type, which
//! needs several times as much machine code.

use serde::de::value::StringDeserializer;
use serde::de::{
    self, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
    Visitor,
};
use serde::forward_to_deserialize_any;
use toml::Spanned;
use toml::de::{DeArray, DeInteger, DeString, DeTable, DeValue};

use super::error::{Error, Example};

/// The name in serde of a struct that also accepts a string instead of a table. The string is then
/// the value of the first key of the table.
const TEXT_OR_TABLE: &str = "text or table";

/// A value of a TOML file. It has its byte offset in the text, for errors.
pub(super) struct Value<'de> {
    offset: usize,
    value: DeValue<'de>,
}

impl<'de> Value<'de> {
    pub(super) fn from_table(table: Spanned<DeTable<'de>>) -> Self {
        Value {
            offset: table.span().start,
            value: DeValue::Table(table.into_inner()),
        }
    }

    fn new(value: Spanned<DeValue<'de>>) -> Self {
        Value {
            offset: value.span().start,
            value: value.into_inner(),
        }
    }

    /// Converts a string `s` to the table `{ main_key = s }`. Any other value stays the same.
    fn with_main_key(self, main_key: &'static str) -> Self {
        let Value { offset, value } = self;
        let value = match value {
            DeValue::String(_) => {
                let key = Spanned::new(offset..offset, DeString::from(main_key));
                DeValue::Table(DeTable::from_iter([(
                    key,
                    Spanned::new(offset..offset, value),
                )]))
            }
            other => other,
        };
        Value { offset, value }
    }

    /// Creates the error for a value that does not have the expected type, with an example of the
    /// correct form if there is one.
    fn type_error(&self, expected: &dyn de::Expected) -> Error {
        let unexpected = match &self.value {
            DeValue::String(text) => Unexpected::Str(text),
            DeValue::Integer(number) => match to_i64(number) {
                Some(number) => Unexpected::Signed(number),
                None => Unexpected::Other("a number that is too large"),
            },
            DeValue::Float(_) => Unexpected::Other("a number with a fraction"),
            DeValue::Boolean(is_true) => Unexpected::Bool(*is_true),
            DeValue::Datetime(_) => Unexpected::Other("a date"),
            DeValue::Array(_) => Unexpected::Seq,
            DeValue::Table(_) => Unexpected::Map,
        };
        let error: Error = de::Error::invalid_type(unexpected, expected);
        let example = Example::from_value(&self.value, &expected.to_string());
        error.with_example(example).with_offset(self.offset)
    }
}

pub(super) fn to_i64(number: &DeInteger<'_>) -> Option<i64> {
    i64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// Declares functions of [`Deserializer`]. Each accepts one type of TOML value and passes the value
/// to the visitor.
macro_rules! deserialize_kinds {
    ($($function:ident: $kind:ident => $visit:expr;)*) => {$(
        fn $function<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            match self.value {
                DeValue::$kind(value) => {
                    $visit(value, visitor).map_err(|error: Error| error.with_offset(self.offset))
                }
                _ => Err(self.type_error(&visitor)),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Value<'de> {
    type Error = Error;

    deserialize_kinds! {
        deserialize_bool: Boolean => |value, visitor: V| visitor.visit_bool(value);
        deserialize_str: String => |text: DeString<'de>, visitor: V| visitor.visit_str(&text);
        deserialize_seq: Array => |list: DeArray<'de>, visitor: V| visitor.visit_seq(SequenceItems(list.into_iter()));
        deserialize_map: Table => |table: DeTable<'de>, visitor: V| {
            let (entries, value) = (table.into_iter(), None);
            visitor.visit_map(TableEntries { entries, value })
        };
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let number = match &self.value {
            DeValue::Integer(number) => to_i64(number),
            _ => None,
        };
        match number {
            Some(number) => visitor
                .visit_i64(number)
                .map_err(|error: Error| error.with_offset(self.offset)),
            None => Err(self.type_error(&visitor)),
        }
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            DeValue::Boolean(_) => self.deserialize_bool(visitor),
            DeValue::String(_) => self.deserialize_str(visitor),
            DeValue::Integer(_) => self.deserialize_i64(visitor),
            DeValue::Array(_) => self.deserialize_seq(visitor),
            DeValue::Table(_) => self.deserialize_map(visitor),
            // No key of a class file or of config.toml has a fraction or a date as its value.
            DeValue::Float(_) | DeValue::Datetime(_) => Err(self.type_error(&visitor)),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        keys: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let table = match keys {
            [main_key, ..] if name == TEXT_OR_TABLE => self.with_main_key(main_key),
            _ => self,
        };
        table.deserialize_map(visitor)
    }

    /// Deserializes an enum from the name of a variant. Variants with fields are not supported,
    /// because no file needs them.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let DeValue::String(name) = self.value else {
            return Err(self.type_error(&visitor));
        };
        let name: StringDeserializer<Error> = name.into_owned().into_deserializer();
        let result = visitor.visit_enum(name);
        result.map_err(|error| error.with_offset(self.offset))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 u8 u16 u32 u64 f32 f64 char bytes byte_buf unit unit_struct tuple
        tuple_struct
    }
}

struct SequenceItems<'de>(<DeArray<'de> as IntoIterator>::IntoIter);

impl<'de> SeqAccess<'de> for SequenceItems<'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let item = self.0.next().map(Value::new);
        item.map(|item| seed.deserialize(item)).transpose()
    }
}

struct TableEntries<'de> {
    entries: <DeTable<'de> as IntoIterator>::IntoIter,
    value: Option<Value<'de>>,
}

impl<'de> MapAccess<'de> for TableEntries<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some((key, value)) = self.entries.next() else {
            return Ok(None);
        };
        self.value = Some(Value::new(value));
        let offset = key.span().start;
        let key = Value {
            offset,
            value: DeValue::String(key.into_inner()),
        };
        let key = seed
            .deserialize(key)
            .map_err(|error| error.with_offset(offset))?;
        Ok(Some(key))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        let value = self.value.take();
        let value = value.ok_or_else(|| <Error as de::Error>::custom("a value without a key"))?;
        let offset = value.offset;
        seed.deserialize(value)
            .map_err(|error| error.with_offset(offset))
    }
}
