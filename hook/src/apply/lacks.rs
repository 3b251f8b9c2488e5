//! What a container that runs lacks of a plan.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use device_class::device::DeviceNumber;
use injection_plan::plan::Action;

use crate::container::{Handle, device_number};

/// What a path in the container leads to.
type Look<'a> = &'a dyn Fn(&Path) -> Result<Option<Handle>, String>;

/// What the container lacks of a step, in words. Nothing can be seen of preparations, of
/// rules, and of what only a part of the container's programs sees.
pub(crate) fn lacks(action: &Action, look: Look<'_>) -> Result<Option<String>, String> {
    let path = match action {
        Action::Node { mount, number, .. } => return lacks_node(&mount.path, *number, look),
        Action::MakeNode { path, number, .. } => return lacks_node(path, *number, look),
        Action::File(mount) | Action::Directory(mount) => &mount.path,
        Action::Library { mount, .. } => &mount.path,
        Action::Link { path, .. } => path,
        Action::Prepare(_) | Action::Allow { .. } | Action::Mask { .. } | Action::Loader { .. } => {
            return Ok(None);
        }
    };
    let there = look(path)?.is_some();
    Ok((!there).then(|| path.display().to_string()))
}

/// Whether the container has another file than the host has now for a step: after an update of
/// a driver it has the files as they were. `None` if there are none to compare.
pub(crate) fn is_outdated(action: &Action, host_root: &Path, look: Look<'_>) -> Option<bool> {
    match action {
        Action::File(mount) | Action::Directory(mount) => {
            is_other_file(&mount.source, &mount.path, host_root, look)
        }
        Action::Library { mount, links } => {
            // A library of another version has another name.
            let links = links.iter().map(|link| mount.path.with_file_name(link));
            let mut paths = std::iter::once(mount.path.clone()).chain(links);
            paths.find_map(|path| is_other_file(&mount.source, &path, host_root, look))
        }
        _ => None,
    }
}

/// Whether the container has another file at `path` than the host has at `source` now; `None`
/// if one of them is not there.
pub(crate) fn is_other_file(
    source: &Path,
    path: &Path,
    host_root: &Path,
    look: Look<'_>,
) -> Option<bool> {
    let below = source.strip_prefix("/").unwrap_or(source);
    let now = fs::metadata(host_root.join(below)).ok()?;
    let there = look(path).ok()??;
    let there = there.stat();
    Some((there.st_dev, there.st_ino) != (now.dev(), now.ino()))
}

fn lacks_node(path: &Path, number: DeviceNumber, look: Look<'_>) -> Result<Option<String>, String> {
    let Some(handle) = look(path)? else {
        return Ok(Some(path.display().to_string()));
    };
    let found = device_number(&handle);
    Ok((found != Some(number)).then(|| {
        let kind = handle.kind();
        match found {
            Some(found) => format!("{} is {found}, expected {number}", path.display()),
            None => format!("{} is {kind}, not a device node", path.display()),
        }
    }))
}
