//! Templates for absolute paths, such as `/dev/npu{index}`.

use serde::Deserialize;

use crate::template::{Template, TemplateError};

/// A template for an absolute path without `..`, such as `/dev/npu{index}`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct PathTemplate(Template);

/// The error for a text that is not a [`PathTemplate`], or whose filled-in path is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathTemplateError {
    /// The path is not absolute, or has `.` or `..` as a component.
    #[error("`{0}` is not an absolute path without `.` and `..`")]
    Path(String),
    #[error(transparent)]
    Template(#[from] TemplateError),
}

impl PathTemplate {
    /// Fills in the attributes, and checks the resulting path. The check is needed because the
    /// value of an attribute comes from the hardware and may contain `/` or `..`.
    pub fn fill(
        &self,
        attributes: &crate::template::Attributes,
    ) -> Result<std::path::PathBuf, PathTemplateError> {
        let filled_path = self.0.fill(attributes)?;
        let count_slashes = |path: &str| path.bytes().filter(|byte| *byte == b'/').count();
        let is_same_depth = count_slashes(&filled_path) == count_slashes(self.0.as_str());
        if !is_same_depth || !is_plain_path(&filled_path) {
            return Err(PathTemplateError::Path(crate::name::excerpt(&filled_path)));
        }
        Ok(filled_path.into())
    }

    /// Returns whether every filled-in path is below `directory`. Only the texts of the two
    /// templates are compared, so a different way to write a path below `directory` is not
    /// recognised.
    pub(super) fn is_under(&self, directory: &Self) -> bool {
        let (path, directory) = (self.0.as_str(), directory.0.as_str());
        path.strip_prefix(directory)
            .is_some_and(|suffix| suffix.starts_with('/'))
    }

    /// Returns the template for the same path below the directory `root`, such as `dev_root` in
    /// config.toml.
    pub(crate) fn with_root(&self, root: &Self) -> Result<Self, PathTemplateError> {
        let root = root.0.as_str();
        Self::try_from(format!("{}{}", root.trim_end_matches('/'), self.0))
    }

    pub fn template(&self) -> &Template {
        &self.0
    }
}

/// Returns whether a text is an absolute path other than `/`, and has no component that is empty,
/// `.` or `..`.
pub(crate) fn is_plain_path(path: &str) -> bool {
    let Some(relative_path) = path.strip_prefix('/') else {
        return false;
    };
    !path.contains('\0')
        && relative_path
            .split('/')
            .all(|part| !matches!(part, "" | "." | ".."))
}

impl TryFrom<String> for PathTemplate {
    type Error = PathTemplateError;

    fn try_from(text: String) -> Result<Self, PathTemplateError> {
        if text == "/" || is_plain_path(&text) {
            Ok(PathTemplate(Template::try_from(text)?))
        } else {
            Err(PathTemplateError::Path(crate::name::excerpt(&text)))
        }
    }
}
