//! Types for parsing untrusted JSON. Texts are borrowed from the JSON document, and lists have a
//! maximum length, so that a document of many small values does not need many times its own size
//! in memory when it is parsed.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// A JSON string. It is borrowed from the document, unless it contains escapes.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub struct Text<'a>(#[serde(borrow)] pub Cow<'a, str>);

/// A list of at most `MAX` items. Parsing a longer one fails.
#[derive(Debug)]
pub struct BoundedList<T, const MAX: usize>(pub Vec<T>);

impl<T, const MAX: usize> Default for BoundedList<T, MAX> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for BoundedList<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<T, const MAX: usize>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Items<T, MAX> {
            type Value = BoundedList<T, MAX>;

            fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(text, "a list of at most {MAX} items")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    if list.len() == MAX {
                        return Err(A::Error::invalid_length(MAX + 1, &self));
                    }
                    list.push(item);
                }
                Ok(BoundedList(list))
            }
        }

        deserializer.deserialize_seq(Items(PhantomData))
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
        let plain: Text<'_> = serde_json::from_str("\"node-1\"").unwrap();
        assert!(matches!(plain.0, Cow::Borrowed("node-1")));
        let escaped: Text<'_> = serde_json::from_str("\"node\\u002d1\"").unwrap();
        assert_eq!(escaped.0, "node-1");
    }
}
