//! The paths of templates and patterns, and what a host has at a path.

use std::path::{Path, PathBuf};

use super::found::Presence;
use super::{DeviceError, MAX_DEVICES, search};
use crate::class::PathTemplate;
use crate::host::{HostView, Place};
use crate::ownership::OwnershipError;
use crate::pattern::PathPattern;
use crate::template::Attributes;

/// Adds the captures of each path that matches to the attributes, in the order of the paths.
/// Without a pattern the attributes are returned as they are.
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

/// The paths that match a pattern, in their order.
pub(super) fn matches(
    pattern: &PathPattern,
    attributes: &Attributes,
    view: &dyn HostView,
) -> Result<Vec<search::Match>, DeviceError> {
    let found = search::matches(pattern, attributes, view, MAX_DEVICES);
    found.map_err(|error| DeviceError::io(pattern.to_string(), &error))
}

/// Fills in the path on the host, and the path in the container, which is the same by default.
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

/// What the host has at a path, if it is `fit`.
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
                // Others than root must not be able to stop containers.
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
