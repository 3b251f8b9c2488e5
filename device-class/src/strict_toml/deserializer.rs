//! Implements serde's `Deserializer` for a value of a TOML file.
//!
//! Each Rust type accepts only one form of value. For example, a struct is read from a table, and
//! never from a list of its fields. [`toml::Deserializer`] accepts every form for every type, which
//! needs several times as much machine code.

use std::borrow::Cow;

use serde::de::value::StringDeserializer;
use serde::de::{
    self, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
    Visitor,
};
use serde::forward_to_deserialize_any;

use super::error::{Error, Example};
use super::value::{Content, Value, to_i64};

/// A struct with this name in serde (`rename`) also accepts a string instead of a table. The string
/// is then the value of the first key of the table.
const TEXT_OR_TABLE: &str = "text or table";

impl Value<'_> {
    /// Creates the error for a value that does not have the expected type, with an example of the
    /// correct form if there is one.
    fn type_error(&self, expected: &dyn de::Expected) -> Error {
        let unexpected = match &self.content {
            Content::Text(text) => Unexpected::Str(text),
            Content::TomlInteger(number) => match to_i64(number) {
                Some(number) => Unexpected::Signed(number),
                None => Unexpected::Other("a number that is too large"),
            },
            Content::JsonInteger(number) => Unexpected::Signed(*number),
            Content::Fraction => Unexpected::Other("a number with a fraction"),
            Content::Boolean(is_true) => Unexpected::Bool(*is_true),
            Content::Date => Unexpected::Other("a date"),
            Content::List(_) => Unexpected::Seq,
            Content::Table(_) => Unexpected::Map,
        };
        let error: Error = de::Error::invalid_type(unexpected, expected);
        let example = Example::from_content(&self.content, &expected.to_string());
        error.with_example(example).with_offset(self.offset)
    }
}

/// Declares functions of [`Deserializer`]. Each accepts one type of TOML value and passes the value
/// to the visitor.
macro_rules! deserialize_kinds {
    ($($function:ident: $kind:ident => $visit:expr;)*) => {$(
        fn $function<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            match self.content {
                Content::$kind(value) => {
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
        deserialize_str: Text => |text: Cow<'de, str>, visitor: V| visitor.visit_str(&text);
        deserialize_seq: List => |list: Vec<Value<'de>>, visitor: V| {
            visitor.visit_seq(ListItems(list.into_iter()))
        };
        deserialize_map: Table => |table: Vec<(Value<'de>, Value<'de>)>, visitor: V| {
            let (entries, value) = (table.into_iter(), None);
            visitor.visit_map(TableEntries { entries, value })
        };
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let number = match &self.content {
            Content::TomlInteger(number) => to_i64(number),
            Content::JsonInteger(number) => Some(*number),
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
        match self.content {
            Content::Boolean(_) => self.deserialize_bool(visitor),
            Content::Text(_) => self.deserialize_str(visitor),
            Content::TomlInteger(_) | Content::JsonInteger(_) => self.deserialize_i64(visitor),
            Content::List(_) => self.deserialize_seq(visitor),
            Content::Table(_) => self.deserialize_map(visitor),
            Content::Fraction | Content::Date => Err(self.type_error(&visitor)),
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
        let Content::Text(name) = self.content else {
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

struct ListItems<'de>(std::vec::IntoIter<Value<'de>>);

impl<'de> SeqAccess<'de> for ListItems<'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let item = self.0.next();
        item.map(|item| seed.deserialize(item)).transpose()
    }
}

struct TableEntries<'de> {
    entries: std::vec::IntoIter<(Value<'de>, Value<'de>)>,
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
        self.value = Some(value);
        let offset = key.offset;
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
