//! The tables `[add]` and `[remove]`, which are an error in a class without a base.

use serde::{Deserialize, Deserializer, de};

/// A table `[add]` or `[remove]` that is left after the layers of a class were merged. Merging
/// applies these tables to the lists of the extended class and removes them, so the type has no
/// value: its deserialization always fails.
#[derive(Debug, Clone)]
pub enum ListChanges {}

impl<'de> Deserialize<'de> for ListChanges {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(de::Error::custom(
            "only a class that extends another one has this table: it changes the lists of that one",
        ))
    }
}
