//! Declares the argument of `boathook list`: the name of a class, or a path such as /dev/ttyUSB0.

use std::path::PathBuf;

use device_class::name::ClassName;

/// The argument of `boathook list`: the name of a class to list, or the path of a file that belongs
/// to a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListTarget {
    Class(ClassName),
    Path(PathBuf),
}

impl ListTarget {
    /// Parses an absolute path, such as /dev/ttyUSB0, or a class name. Any text that does not begin
    /// with `/` must be a valid class name; otherwise returns an error message.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with('/') {
            return Ok(ListTarget::Path(text.into()));
        }
        let class = ClassName::try_from(text.to_owned()).map_err(|error| error.to_string())?;
        Ok(ListTarget::Class(class))
    }
}
