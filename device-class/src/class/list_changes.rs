//! `[add]` and `[remove]` in a class without a base.

use serde::{Deserialize, Deserializer, de};

/// A table that only a class that extends another one can have. It is applied to the lists of the
/// other class before the file becomes a class, so that no class has one.
#[derive(Debug, Clone)]
pub enum ListChanges {}

impl<'de> Deserialize<'de> for ListChanges {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(de::Error::custom(
            "only a class that extends another one has this table: it changes the lists of that one",
        ))
    }
}
