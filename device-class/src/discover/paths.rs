//! Fills in path templates and path patterns, and looks up paths on the host.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::slice;

use super::found::PathLookup;
use super::{DeviceError, MAX_DEVICES, search};
use crate::class::PathTemplate;
use crate::host::{HostFile, HostView};
use crate::ownership::OwnershipError;
use crate::pattern::PathPattern;
use crate::template::Attributes;

/// Returns one set of attributes for each path that matches the pattern: `attributes`, and the
/// values that captures such as `{name}` take from the path. Without a pattern, returns only
/// `attributes`.
pub(super) fn list_attribute_sets<'a>(
    pattern: Option<&PathPattern>,
    attributes: &'a Attributes,
    view: &dyn HostView,
) -> Result<Cow<'a, [Attributes]>, DeviceError> {
    let Some(pattern) = pattern else {
        return Ok(Cow::Borrowed(slice::from_ref(attributes)));
    };
    let matches = find_matches(pattern, attributes, view)?.into_iter();
    Ok(Cow::Owned(
        matches.map(|path_match| path_match.attributes).collect(),
    ))
}

/// Returns the paths that match a pattern, in the order of [`search::find_matches`], and at most
/// [`MAX_DEVICES`] of them.
pub(super) fn find_matches(
    pattern: &PathPattern,
    attributes: &Attributes,
    view: &dyn HostView,
) -> Result<Vec<search::PathMatch>, DeviceError> {
    let matches = search::find_matches(pattern, attributes, view, MAX_DEVICES);
    matches.map_err(|error| DeviceError::io(pattern.to_string(), &error))
}

/// Fills in the templates for a path on the host and for the path in the container. Without a
/// template for the container, both paths are the same.
pub(super) fn fill_both_paths(
    host_path: &PathTemplate,
    container_path: Option<&PathTemplate>,
    attributes: &Attributes,
) -> Result<(PathBuf, PathBuf), DeviceError> {
    let host_path = host_path.fill(attributes)?;
    let container_path = match container_path {
        Some(template) => template.fill(attributes)?,
        None => host_path.clone(),
    };
    Ok((host_path, container_path))
}

/// Looks up a path on the host. `convert` returns a value if the file has the expected type, and
/// `None` otherwise. `expected_type` names this type in messages. A path is refused if users other
/// than root can decide which file is there.
pub(super) fn look_up_path<T>(
    path: &Path,
    is_optional: bool,
    expected_type: &str,
    host: &dyn HostView,
    convert: impl FnOnce(HostFile) -> Option<T>,
) -> PathLookup<T> {
    let path_text = path.display();
    match host.find_trusted_file(path) {
        Ok(Some(host_file)) => {
            let HostFile {
                entry,
                can_others_replace,
                ..
            } = host_file;
            match convert(host_file) {
                Some(value) => PathLookup::Found(value),
                // Users other than root can create a file at this path. If a file of the wrong type
                // made the optional path unusable, such a user could keep containers from starting.
                None if is_optional && can_others_replace => PathLookup::OptionalAbsent,
                None => {
                    PathLookup::Unusable(format!("{path_text} is {entry}, not {expected_type}"))
                }
            }
        }
        Err(OwnershipError::Open { error, .. }) => {
            PathLookup::Unusable(format!("cannot look up {path_text}: {error}"))
        }
        Ok(None) | Err(_) if is_optional => PathLookup::OptionalAbsent,
        Ok(None) => PathLookup::Unusable(format!("{path_text} does not exist")),
        Err(OwnershipError::WorldWritable {
            path: directory, ..
        }) => PathLookup::Unusable(format!(
            "{path_text} cannot be trusted: every user of the host can create files in {}; move it to \
             a directory of root's",
            directory.display()
        )),
        Err(error) => PathLookup::Unusable(format!("{path_text} cannot be trusted: {error}")),
    }
}
