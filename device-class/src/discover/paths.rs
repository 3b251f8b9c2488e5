//! Fills in the templates and patterns of paths, and looks up a path on the host.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::slice;

use super::found::Presence;
use super::{DeviceError, MAX_DEVICES, search};
use crate::class::PathTemplate;
use crate::host::{HostView, Place};
use crate::ownership::OwnershipError;
use crate::pattern::PathPattern;
use crate::template::Attributes;

/// Returns, for each path that matches the pattern, the attributes with the captures of this
/// path added. Without a pattern the attributes alone are returned.
pub(super) fn capture_attributes<'a>(
    pattern: Option<&PathPattern>,
    attributes: &'a Attributes,
    view: &dyn HostView,
) -> Result<Cow<'a, [Attributes]>, DeviceError> {
    let Some(pattern) = pattern else {
        return Ok(Cow::Borrowed(slice::from_ref(attributes)));
    };
    let found = matches(pattern, attributes, view)?.into_iter();
    Ok(Cow::Owned(found.map(|found| found.attributes).collect()))
}

/// Returns the paths that match a pattern, sorted, at most [`MAX_DEVICES`].
pub(super) fn matches(
    pattern: &PathPattern,
    attributes: &Attributes,
    view: &dyn HostView,
) -> Result<Vec<search::Match>, DeviceError> {
    let found = search::matches(pattern, attributes, view, MAX_DEVICES);
    found.map_err(|error| DeviceError::io(pattern.to_string(), &error))
}

/// Fills in the path on the host and the path in the container. The path in the container is
/// the same by default.
pub(super) fn fill_both_paths(
    host: &PathTemplate,
    container: Option<&PathTemplate>,
    attributes: &Attributes,
) -> Result<(PathBuf, PathBuf), DeviceError> {
    let path = host.fill(attributes)?;
    let container = match container {
        Some(container) => container.fill(attributes)?,
        None => path.clone(),
    };
    Ok((path, container))
}

/// Looks up a path on the host. `fit` returns a value if the file at the path has the expected type,
/// and `None` otherwise. `wanted` names the expected type in messages. A path at which users other
/// than root can put a file is never used.
pub(super) fn present<T>(
    path: &Path,
    optional: bool,
    wanted: &str,
    host: &dyn HostView,
    fit: impl FnOnce(Place) -> Option<T>,
) -> Presence<T> {
    let shown = path.display();
    match host.place(path) {
        Ok(Some(place)) => {
            let Place {
                entry,
                is_of_others,
                ..
            } = place;
            match fit(place) {
                Some(found) => Presence::Found(found),
                // A user other than root can create this file. If it made the optional path unusable,
                // that user could keep containers from starting.
                None if optional && is_of_others => Presence::Optional,
                None => Presence::Unusable(format!("{shown} is {entry}, not {wanted}")),
            }
        }
        Err(OwnershipError::Open { error, .. }) => {
            Presence::Unusable(format!("cannot look up {shown}: {error}"))
        }
        Ok(None) | Err(_) if optional => Presence::Optional,
        Ok(None) => Presence::Unusable(format!("{shown} does not exist")),
        Err(OwnershipError::Shared { path: shared, .. }) => Presence::Unusable(format!(
            "{shown} cannot be trusted: every user of the host can create files in {}; move it to \
             a directory of root's",
            shared.display()
        )),
        Err(error) => Presence::Unusable(format!("{shown} cannot be trusted: {error}")),
    }
}
