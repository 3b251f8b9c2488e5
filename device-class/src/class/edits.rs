//! What a container gets: nodes and files, in CDI's sense of container edits.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::name::CapabilityName;
use crate::template::{Template, TemplateError};

/// `[[edits]]`: what a container gets once.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edits {
    /// Only for a container with this capability; without it for all.
    #[serde(default)]
    pub capability: Option<CapabilityName>,
    /// Whether everything in this table may be missing on the host.
    #[serde(default)]
    pub optional: bool,
    /// Control nodes. A container that gets no device gets none of them.
    #[serde(default, deserialize_with = "short_or_table")]
    pub nodes: Vec<Node>,
    /// Libraries, by the soname under which the host's ld.so.cache has them.
    #[serde(default, deserialize_with = "short_or_table")]
    pub libraries: Vec<Library>,
    /// Programs; they keep their path.
    #[serde(default, deserialize_with = "short_or_table")]
    pub binaries: Vec<File>,
    /// Other files; they keep their path unless one is given.
    #[serde(default, deserialize_with = "short_or_table")]
    pub files: Vec<File>,
    /// Whole directories; they keep their path unless one is given.
    #[serde(default, deserialize_with = "short_or_table")]
    pub directories: Vec<Directory>,
}

/// A device node. Short form: its path.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Where the host has it.
    pub path: PathTemplate,
    /// Where the container gets it, if elsewhere.
    #[serde(default)]
    pub container_path: Option<PathTemplate>,
    /// What the device rule allows.
    #[serde(default)]
    pub access: Access,
    /// The permission bits that the container's users see. With this or `gid`
    /// the container gets a node of its own and not the host's.
    #[serde(default)]
    pub mode: Option<NodeMode>,
    /// The group that the container's users see.
    #[serde(default)]
    pub gid: Option<u32>,
    /// Whether it may be missing on the host.
    #[serde(default)]
    pub optional: bool,
}

/// A library. Short form: its soname.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Library {
    /// The name under which programs load it.
    pub soname: SoName,
    /// Further names for it, such as the one without a version.
    #[serde(default)]
    pub links: Vec<SoName>,
    /// Whether it may be missing on the host.
    #[serde(default)]
    pub optional: bool,
}

/// A single file. Short form: its path.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Where the host (or the driver's root) has it.
    pub path: PathTemplate,
    /// Where the container gets it, if elsewhere.
    #[serde(default)]
    pub container_path: Option<PathTemplate>,
    /// Whether it may be missing on the host.
    #[serde(default)]
    pub optional: bool,
}

/// A whole directory. Short form: its path.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Directory {
    /// Where the host (or the driver's root) has it.
    pub path: PathTemplate,
    /// Where the container gets it, if elsewhere.
    #[serde(default)]
    pub container_path: Option<PathTemplate>,
    /// Whether its libraries are to be found by the container's loader.
    #[serde(default)]
    pub libraries: bool,
    /// Whether it may be missing on the host.
    #[serde(default)]
    pub optional: bool,
}

/// A template for an absolute path without `..`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct PathTemplate(Template);

/// Why a text is no [`PathTemplate`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathTemplateError {
    /// Not absolute, or with components that mean another directory.
    #[error("`{0}` is not an absolute path without `.` and `..`")]
    Path(String),
    /// Not a template.
    #[error(transparent)]
    Template(#[from] TemplateError),
}

impl PathTemplate {
    /// The path's text with its attributes in place, checked once more: an
    /// attribute comes from the hardware and may hold anything.
    ///
    /// # Errors
    /// An attribute is missing, or makes the path another one.
    pub fn fill(
        &self,
        attributes: &crate::template::Attributes,
    ) -> Result<std::path::PathBuf, PathTemplateError> {
        let filled = self.0.fill(attributes)?;
        let as_many = filled.matches('/').count() == self.0.to_string().matches('/').count();
        if !as_many || !is_plain(&filled) {
            return Err(PathTemplateError::Path(crate::name::excerpt(&filled)));
        }
        Ok(filled.into())
    }

    /// The template behind it.
    pub fn template(&self) -> &Template {
        &self.0
    }
}

fn is_plain(path: &str) -> bool {
    let Some(relative) = path.strip_prefix('/') else {
        return false;
    };
    !path.contains('\0')
        && relative
            .split('/')
            .all(|part| !matches!(part, "" | "." | ".."))
}

impl TryFrom<String> for PathTemplate {
    type Error = PathTemplateError;

    fn try_from(text: String) -> Result<Self, PathTemplateError> {
        if text == "/" || is_plain(&text) {
            Ok(PathTemplate(Template::try_from(text)?))
        } else {
            Err(PathTemplateError::Path(crate::name::excerpt(&text)))
        }
    }
}

/// The name under which a library is loaded: a file name, no path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct SoName(String);

impl SoName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for SoName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-+".contains(c);
        if name.contains(".so") && name.len() < 256 && name.chars().all(plain) {
            Ok(SoName(name))
        } else {
            let name = crate::name::excerpt(&name);
            Err(format!(
                "`{name}` is not the name of a shared library, such as libx.so.1"
            ))
        }
    }
}

/// The permission bits of a node, written in octal: `0660`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct NodeMode(u32);

impl NodeMode {
    /// The bits.
    pub fn bits(self) -> u32 {
        self.0
    }
}

impl TryFrom<String> for NodeMode {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match u32::from_str_radix(&text, 8) {
            Ok(bits @ 0..=0o777) => Ok(NodeMode(bits)),
            _ => Err(format!(
                "mode `{text}` is not an octal number from 0000 to 0777"
            )),
        }
    }
}

/// What a device rule allows: read, write, mknod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Access {
    /// Opening for reading.
    pub read: bool,
    /// Opening for writing.
    pub write: bool,
    /// Making a node for it.
    pub mknod: bool,
}

impl Default for Access {
    fn default() -> Self {
        Access {
            read: true,
            write: true,
            mknod: false,
        }
    }
}

impl TryFrom<String> for Access {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut access = Access {
            read: false,
            write: false,
            mknod: false,
        };
        for c in text.chars() {
            match c {
                'r' => access.read = true,
                'w' => access.write = true,
                'm' => access.mknod = true,
                _ => {
                    return Err(format!(
                        "access `{text}` may only have the letters r, w and m"
                    ));
                }
            }
        }
        if text.is_empty() {
            return Err("access is empty; it has the letters r, w and m".into());
        }
        Ok(access)
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (has, letter) in [(self.read, "r"), (self.write, "w"), (self.mknod, "m")] {
            if has {
                f.write_str(letter)?;
            }
        }
        Ok(())
    }
}

/// A table that has a short form: a text that stands for its main key.
pub(super) trait Short: Sized {
    type Text: TryFrom<String, Error: fmt::Display>;
    fn from_text(text: Self::Text) -> Self;
}

impl Short for Node {
    type Text = PathTemplate;
    fn from_text(path: PathTemplate) -> Self {
        Node {
            path,
            container_path: None,
            access: Access::default(),
            mode: None,
            gid: None,
            optional: false,
        }
    }
}

impl Short for Library {
    type Text = SoName;
    fn from_text(soname: SoName) -> Self {
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
            optional: false,
        }
    }
}

/// Reads a list whose elements are tables or their short form.
pub(super) fn short_or_table<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
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
