//! Shared libraries of the host that a container gets. A class names them, or selects them by
//! patterns.

use serde::Deserialize;

use crate::pattern::PathPattern;
use crate::template::{Attributes, Template};

/// # `libraries`
///
/// A shared library that the container gets. Short form: its soname. The library is looked up in
/// the ld.so.cache of the host, or of the driver's root directory if there is one.
#[derive(Debug, Clone, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename = "text or table",
    expecting = "a text or a table"
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "library"))]
pub struct Library {
    /// A template for the soname.
    pub soname: SoNameTemplate,
    /// Additional names for the library, such as the name without a version.
    #[serde(default)]
    pub links: Vec<SoName>,
    /// Whether the library may be missing on the host.
    #[serde(default)]
    pub optional: bool,
}

/// # `libraries_matching`
///
/// Patterns that select additional libraries by name, from the host's ld.so.cache and from
/// `library_directories`. So a container also gets the libraries of drivers that are newer than the
/// class file. With `library_version`, libraries of another version are left out.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "library_names"))]
pub struct LibraryNamePatterns {
    /// Patterns for library names. A library is added if its name matches one of them.
    #[serde(rename = "names")]
    pub included_names: Vec<NamePattern>,
    /// Patterns for the names of libraries that are left out, even if `names` matches them.
    #[serde(default, rename = "except")]
    pub excluded_names: Vec<NamePattern>,
}

impl LibraryNamePatterns {
    /// Returns whether a container gets the library with this file name, such as `libx-ml.so.1`.
    pub(crate) fn matches_name(&self, name: &str) -> bool {
        let matches_name = |pattern: &NamePattern| pattern.matches(name);
        self.included_names.iter().any(matches_name)
            && !self.excluded_names.iter().any(matches_name)
    }
}

/// A pattern for file names, such as `libx-*.so.1`.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
pub struct NamePattern(PathPattern);

impl NamePattern {
    pub(crate) fn matches(&self, name: &str) -> bool {
        let component = self.0.components().first();
        component.is_some_and(|component| {
            component
                .capture_attributes(name, &Attributes::new())
                .is_some()
        })
    }
}

impl TryFrom<String> for NamePattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let pattern = PathPattern::try_from(format!("/{text}")).map_err(|e| e.to_string())?;
        let is_name_pattern =
            pattern.components().len() == 1 && pattern.captures().next().is_none();
        if is_name_pattern {
            Ok(NamePattern(pattern))
        } else {
            Err(format!("`{text}` is not a pattern for the name of a file"))
        }
    }
}

/// The name by which programs load a library: a file name without a directory, such as `libx.so.1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct SoName(String);

impl SoName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for SoName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let is_valid = |c: char| c.is_ascii_alphanumeric() || "._-+".contains(c);
        if name.contains(".so") && name.len() < 256 && name.chars().all(is_valid) {
            Ok(SoName(name))
        } else {
            let name = crate::name::excerpt(&name);
            Err(format!(
                "`{name}` is not the name of a shared library, such as libx.so.1; for a path use \
                 `directories` with `libraries = true`"
            ))
        }
    }
}

/// A template for a [`SoName`], such as `libx.so.{version}`. Some sonames contain the version of
/// the driver, which differs from host to host.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct SoNameTemplate(Template);

impl SoNameTemplate {
    /// Fills in the attributes and checks that the result is a valid soname, because attributes
    /// come from the host and may have any characters.
    pub fn fill(&self, attributes: &Attributes) -> Result<SoName, String> {
        let name = self.0.fill(attributes).map_err(|e| e.to_string())?;
        SoName::try_from(name)
    }

    pub fn template(&self) -> &Template {
        &self.0
    }
}

impl TryFrom<String> for SoNameTemplate {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let template = Template::try_from(text.clone()).map_err(|e| e.to_string())?;
        if template.attributes().next().is_none() {
            SoName::try_from(text)?;
        }
        Ok(SoNameTemplate(template))
    }
}
