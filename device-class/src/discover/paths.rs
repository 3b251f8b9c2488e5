//! The paths of templates and patterns, and what a host has at a path.

use std::path::{Path, PathBuf};

use super::found::Presence;
use super::{DeviceError, MAX_DEVICES, search};
use crate::class::PathTemplate;
use crate::host::{Entry, HostView};
use crate::pattern::PathPattern;
use crate::template::Attributes;

/// The attributes with the captures of each path that matches, in their order.
pub(super) fn each(
    pattern: Option<&PathPattern>,
    attributes: &Attributes,
    view: &dyn HostView,
) -> Result<Vec<Attributes>, DeviceError> {
    let Some(pattern) = pattern else {
        return Ok(vec![attributes.clone()]);
    };
    let found = search::matches(pattern, attributes, view, MAX_DEVICES).map_err(|error| {
        let path = pattern.to_string().into();
        DeviceError::Io { path, error }
    })?;
    Ok(found.into_iter().map(|found| found.attributes).collect())
}

/// The paths that match a pattern, in their order.
pub(super) fn paths(
    pattern: &PathPattern,
    attributes: &Attributes,
    view: &dyn HostView,
) -> Result<Vec<PathBuf>, DeviceError> {
    let found = search::matches(pattern, attributes, view, MAX_DEVICES).map_err(|error| {
        let path = pattern.to_string().into();
        DeviceError::Io { path, error }
    })?;
    Ok(found.into_iter().map(|found| found.path).collect())
}

/// The path on the host, and the path in the container.
pub(super) fn both(
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
    fit: impl FnOnce(Entry) -> Option<T>,
) -> Presence<T> {
    let entry = host.entry(path);
    // Also where an entry cannot be looked up: every user can put a link to itself
    // into such a directory.
    let shared = match entry {
        Ok(None) => Ok(None),
        _ => host.shared_directory(path),
    };
    match (entry, shared) {
        (Ok(None), _) | (_, Ok(Some(_))) if optional => Presence::Optional,
        (Ok(None), _) => Presence::Unfit(format!("{} does not exist", path.display())),
        (_, Ok(Some(shared))) => Presence::Unfit(format!(
            "{} cannot be trusted: every user of the host can create files in {}; \
             move it to a directory of root's",
            path.display(),
            shared.display()
        )),
        (Ok(Some(entry)), Ok(None)) => match fit(entry) {
            Some(found) => Presence::Found(found),
            None => Presence::Unfit(format!("{} is {entry}, not {wanted}", path.display())),
        },
        (Err(error), _) | (_, Err(error)) => {
            Presence::Unfit(format!("cannot look up {}: {error}", path.display()))
        }
    }
}
