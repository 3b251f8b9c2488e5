//! Parts of untrusted JSON bodies. They are borrowed from the body and have a bounded number,
//! so that a body with many small values does not take a multiple of its size in memory.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// A text that is part of the body, unless it has escapes.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub struct Text<'a>(#[serde(borrow)] pub Cow<'a, str>);

/// A list of at most `MOST` items.
#[derive(Debug)]
pub struct List<T, const MOST: usize>(pub Vec<T>);

impl<T, const MOST: usize> Default for List<T, MOST> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for List<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Items<T, const MOST: usize>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Items<T, MOST> {
            type Value = List<T, MOST>;

            fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(text, "a list of at most {MOST} items")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    if list.len() == MOST {
                        return Err(A::Error::invalid_length(MOST + 1, &self));
                    }
                    list.push(item);
                }
                Ok(List(list))
            }
        }

        from.deserialize_seq(Items(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_an_end() {
        let read = |text| serde_json::from_str::<List<u8, 2>>(text).map(|list| list.0);
        assert_eq!(read("[]").unwrap(), [0; 0]);
        assert_eq!(read("[1, 2]").unwrap(), [1, 2]);
        let error = read("[1, 2, 3]").unwrap_err().to_string();
        let said = "expected a list of at most 2 items";
        assert!(error.contains(said), "{error}");
        assert!(read("{}").is_err());
    }

    #[test]
    fn texts_are_borrowed_where_they_can_be() {
        let plain: Text<'_> = serde_json::from_str("\"node-1\"").unwrap();
        assert!(matches!(plain.0, Cow::Borrowed("node-1")));
        let escaped: Text<'_> = serde_json::from_str("\"node\\u002d1\"").unwrap();
        assert_eq!(escaped.0, "node-1");
    }
}
