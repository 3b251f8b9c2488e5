//! Fills in paths of templates and patterns, and looks up a path on the host.

use std::path::{Path, PathBuf};

use super::found::Presence;
use super::{DeviceError, MAX_DEVICES, search};
use crate::class::PathTemplate;
use crate::host::{HostView, Place};
use crate::ownership::OwnershipError;
use crate::pattern::PathPattern;
use crate::template::Attributes;

/// Returns, for each path that matches the pattern, the attributes with the captures of this
/// path added. Without a pattern the attributes alone are returned.
pub(super) fn capture_attributes(
    pattern: Option<&PathPattern>,
    attributes: &Attributes,
    view: &dyn HostView,
) -> Result<Vec<Attributes>, DeviceError> {
    let Some(pattern) = pattern else {
        return Ok(vec![attributes.clone()]);
    };
    let found = matches(pattern, attributes, view)?.into_iter();
    Ok(found.map(|found| found.attributes).collect())
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

/// Looks up a path on the host. `fit` returns the value of a usable place, and `None` for a
/// place of another type; `wanted` names the expected type in messages. A path that other users
/// than root can change is never used.
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
                // Another user made this file. If the file were a fault, that user could stop
                // containers from starting.
                None if optional && is_of_others => Presence::Optional,
                None => Presence::Unfit(format!("{shown} is {entry}, not {wanted}")),
            }
        }
        Err(OwnershipError::Open { error, .. }) => {
            Presence::Unfit(format!("cannot look up {shown}: {error}"))
        }
        Ok(None) | Err(_) if optional => Presence::Optional,
        Ok(None) => Presence::Unfit(format!("{shown} does not exist")),
        Err(OwnershipError::Shared { path: shared, .. }) => Presence::Unfit(format!(
            "{shown} cannot be trusted: every user of the host can create files in {}; move it to \
             a directory of root's",
            shared.display()
        )),
        Err(error) => Presence::Unfit(format!("{shown} cannot be trusted: {error}")),
    }
}
