//! Templates for absolute paths.

use serde::Deserialize;

use crate::template::{Template, TemplateError};

/// A template for an absolute path without `..`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct PathTemplate(Template);

/// An error for a text that is not a [`PathTemplate`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathTemplateError {
    /// The path is not absolute, or has `.` or `..` as a component.
    #[error("`{0}` is not an absolute path without `.` and `..`")]
    Path(String),
    #[error(transparent)]
    Template(#[from] TemplateError),
}

impl PathTemplate {
    /// Fills in the attributes and checks the path once more, because an attribute comes from
    /// the hardware and may contain `/` or `..`.
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

    /// Returns whether every filled-in path lies under `directory`. Only the texts of the templates
    /// are compared, so a path under the directory that is written differently is not recognised.
    pub(super) fn is_under(&self, directory: &Self) -> bool {
        let (path, directory) = (self.0.to_string(), directory.0.to_string());
        path.strip_prefix(&directory)
            .is_some_and(|below| below.starts_with('/'))
    }

    /// Returns the same path below another root directory.
    pub(crate) fn below(&self, root: &Self) -> Result<Self, PathTemplateError> {
        let root = root.0.to_string();
        Self::try_from(format!("{}{}", root.trim_end_matches('/'), self.0))
    }

    pub fn template(&self) -> &Template {
        &self.0
    }
}

/// Returns whether a text is an absolute path, other than `/`, without `.` and `..`.
pub(crate) fn is_plain(path: &str) -> bool {
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
