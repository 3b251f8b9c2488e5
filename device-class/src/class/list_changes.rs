//! The tables `[add]` and `[remove]`, which are an error in a class that does not extend another
//! one.

use serde::{Deserialize, Deserializer, de};

/// A table `[add]` or `[remove]` in a class that extends no other class. Such a table is an error,
/// so this type has no value and its deserialization always fails. In a class with `extends`, the
/// tables are applied and removed before the class is deserialized.
#[derive(Debug, Clone)]
pub enum ListChanges {}

impl<'de> Deserialize<'de> for ListChanges {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(de::Error::custom(
            "only a class that extends another one has this table: it changes the lists of that one",
        ))
    }
}
