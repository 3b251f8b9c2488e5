//! Defines types for parsing untrusted JSON with little memory. Strings are borrowed from the
//! document, and lists have a maximum length. Otherwise a document with many small values would
//! need many times its size in memory.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// A JSON string, which is borrowed from the document unless it contains escapes.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub struct JsonString<'a>(#[serde(borrow)] pub Cow<'a, str>);

/// A list of at most `MAX_ITEMS` items. Parsing a longer list fails.
#[derive(Debug)]
pub struct BoundedList<T, const MAX_ITEMS: usize>(pub Vec<T>);

impl<T, const MAX_ITEMS: usize> Default for BoundedList<T, MAX_ITEMS> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const MAX_ITEMS: usize> Deserialize<'de>
    for BoundedList<T, MAX_ITEMS>
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor<T, const MAX_ITEMS: usize>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>, const MAX_ITEMS: usize> Visitor<'de> for ListVisitor<T, MAX_ITEMS> {
            type Value = BoundedList<T, MAX_ITEMS>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "a list of at most {MAX_ITEMS} items")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    if list.len() == MAX_ITEMS {
                        return Err(A::Error::invalid_length(MAX_ITEMS + 1, &self));
                    }
                    list.push(item);
                }
                Ok(BoundedList(list))
            }
        }

        deserializer.deserialize_seq(ListVisitor(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_longer_than_its_maximum_is_refused() {
        let parse = |text| serde_json::from_str::<BoundedList<u8, 2>>(text).map(|list| list.0);
        assert_eq!(parse("[]").unwrap(), [0; 0]);
        assert_eq!(parse("[1, 2]").unwrap(), [1, 2]);
        let error = parse("[1, 2, 3]").unwrap_err().to_string();
        let said = "expected a list of at most 2 items";
        assert!(error.contains(said), "{error}");
        assert!(parse("{}").is_err());
    }

    #[test]
    fn a_text_is_borrowed_unless_it_has_escapes() {
        let plain: JsonString<'_> = serde_json::from_str("\"node-1\"").unwrap();
        assert!(matches!(plain.0, Cow::Borrowed("node-1")));
        let escaped: JsonString<'_> = serde_json::from_str("\"node\\u002d1\"").unwrap();
        assert_eq!(escaped.0, "node-1");
    }
}
