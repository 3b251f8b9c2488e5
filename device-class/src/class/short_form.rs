//! Tables that have a short form: a text that represents their main key.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::device::Access;

use super::path_template::PathTemplate;
use super::{Directory, File, FileKind, Library, Node, SoNameTemplate};

/// A table that has a short form: a text that represents its main key.
pub(crate) trait Short: Sized {
    type Text: TryFrom<String, Error: fmt::Display>;
    fn from_text(text: Self::Text) -> Self;
}

impl Short for Node {
    type Text = PathTemplate;
    fn from_text(path: PathTemplate) -> Self {
        Node {
            path,
            prefer: Vec::new(),
            for_each: None,
            links: Vec::new(),
            container_path: None,
            capability: None,
            access: Access::default(),
            mode: None,
            gid: None,
            optional: false,
            driver: None,
            block: false,
            make: None,
            advice: None,
        }
    }
}

impl Short for Library {
    type Text = SoNameTemplate;
    fn from_text(soname: SoNameTemplate) -> Self {
        Library {
            soname,
            links: Vec::new(),
            optional: false,
        }
    }
}

impl Short for File {
    type Text = PathTemplate;
    fn from_text(path: PathTemplate) -> Self {
        File {
            path,
            kind: FileKind::File,
            fallbacks: Vec::new(),
            for_each: None,
            container_path: None,
            optional: false,
        }
    }
}

impl Short for Directory {
    type Text = PathTemplate;
    fn from_text(path: PathTemplate) -> Self {
        Directory {
            path,
            container_path: None,
            libraries: false,
            writable: false,
            optional: false,
        }
    }
}

/// An element of such a list, for the JSON Schema.
#[cfg(test)]
#[derive(schemars::JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum TextOr<T> {
    Text(String),
    Table(T),
}

/// Reads a list whose elements are tables or their short form.
pub(crate) fn short_or_table<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Short + Deserialize<'de>,
{
    struct Either<T>(T);
    struct EitherVisitor<T>(PhantomData<T>);
    struct ListVisitor<T>(PhantomData<T>);

    impl<'de, T: Short + Deserialize<'de>> Visitor<'de> for EitherVisitor<T> {
        type Value = Either<T>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a text or a table")
        }
        fn visit_str<E: Error>(self, text: &str) -> Result<Either<T>, E> {
            T::Text::try_from(text.to_owned())
                .map(|t| Either(T::from_text(t)))
                .map_err(E::custom)
        }
        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Either<T>, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map)).map(Either)
        }
    }

    impl<'de, T: Short + Deserialize<'de>> Deserialize<'de> for Either<T> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_any(EitherVisitor(PhantomData))
        }
    }

    impl<'de, T: Short + Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
        type Value = Vec<T>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut items = Vec::new();
            while let Some(Either(item)) = list.next_element::<Either<T>>()? {
                items.push(item);
            }
            Ok(items)
        }
    }

    deserializer.deserialize_seq(ListVisitor(PhantomData))
}
