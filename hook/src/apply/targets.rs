//! What is done in the container's mount namespace.

use std::path::Path;

use device_class::discover::MadeNode;

use super::ApplyError;
use super::injected_dir::InjectedDir;
use super::loader;
use super::sources::{OpenedAction, Ready, device_access};
use crate::container::{ContainerRoot, DeviceAccess, FileKind, Name, Parent};
use crate::mount::{KernelCalls, Mounter, Source};

pub(crate) fn attach(
    ready: Vec<Ready<'_>>,
    root: &ContainerRoot,
    calls: KernelCalls,
    label: Option<&str>,
    notes: &mut Vec<String>,
) -> Result<(), ApplyError> {
    let mut mounter = Mounter::new(root, calls);
    let mut injected_dir = InjectedDir::default();
    let mut loaders = Vec::new();
    for Ready { what, why, .. } in ready {
        let done = match what {
            OpenedAction::Mask(mask) => mask.attach(root, &mut mounter, label),
            OpenedAction::Directory { source, path } => place_at(source, path, root, &mut mounter),
            OpenedAction::Node {
                source,
                path,
                number,
                own,
            } => match own_node(own, path, root, notes) {
                Some(own) => root.make_device(path, number, own).map_err(Into::into),
                None => place_at(source, path, root, &mut mounter),
            },
            OpenedAction::MakeNode { path, number, made } => match root.can_make_devices() {
                true => root
                    .make_device(path, number, device_access(made.own))
                    .map_err(Into::into),
                false => Err(not_on_host(path, made)),
            },
            OpenedAction::Link { path, target } => link(path, target, root),
            OpenedAction::File { source, path } => {
                file(source, path, root, &mut mounter, &mut injected_dir)
            }
            OpenedAction::Library {
                source,
                path,
                links,
            } => injected_dir.library(source, path, links),
            OpenedAction::Loader(searched) => {
                loaders.push(searched);
                Ok(())
            }
        };
        done.map_err(|error| error.with_subject(why))?;
    }
    injected_dir.attach(root, &mut mounter, label)?;
    for searched in loaders {
        loader::configure(root, searched, notes)?;
    }
    Ok(())
}

/// The mode and owner of a node that is made in the container. None if the
/// host's node is bound.
fn own_node(
    own: Option<DeviceAccess>,
    path: &Path,
    root: &ContainerRoot,
    notes: &mut Vec<String>,
) -> Option<DeviceAccess> {
    let own = own?;
    if root.can_make_devices() {
        return Some(own);
    }
    notes.push(format!(
        "{}: the container has a user namespace and gets the host's node; to open it, its user \
         has to be in the host's group that owns it, not in {}",
        path.display(),
        own.gid
    ));
    None
}

fn not_on_host(path: &Path, made: &MadeNode) -> ApplyError {
    ApplyError::NodeNotOnHost {
        path: path.to_owned(),
        driver: made.driver.clone(),
        advice: made.advice.clone(),
    }
}

/// Creates a link. What the container has under its name is as good: the host's own
/// directory, or the link of the hook's first run.
fn link(path: &Path, target: &Path, root: &ContainerRoot) -> Result<(), ApplyError> {
    let (parent, name) = root.parent(path)?;
    match parent.open(name)? {
        None => Ok(parent.symlink(name, target)?),
        Some(_) => Ok(()),
    }
}

fn place_at(
    source: Source,
    path: &Path,
    root: &ContainerRoot,
    mounter: &mut Mounter,
) -> Result<(), ApplyError> {
    let (parent, name) = root.parent(path)?;
    place(source, &parent, name, mounter)
}

/// Mounts a source on a name, unless the name shows it already: a hook may run
/// twice.
fn place(
    source: Source,
    parent: &Parent,
    name: Name<'_>,
    mounter: &mut Mounter,
) -> Result<(), ApplyError> {
    let target = parent.mount_point(name, source.kind())?;
    if !target.shows(source.identity()) {
        mounter.attach(source, &target)?;
    }
    Ok(())
}

/// Mounts a file over the one that the image has. Without one there is a link to
/// where the file will be in the hook's own directory: an empty file would stay
/// in the image's layer.
///
/// A link of the image is made to lead there too. What it leads to may be more
/// than one program (`/bin/busybox`), so it must not be covered.
fn file<'p>(
    source: Source,
    path: &'p Path,
    root: &ContainerRoot,
    mounter: &mut Mounter,
    injected_dir: &mut InjectedDir<'p>,
) -> Result<(), ApplyError> {
    let (parent, name) = root.parent(path)?;
    let link = InjectedDir::place_of(path);
    match parent.open(name)?.map(|found| found.kind()) {
        None => parent.symlink(name, &link)?,
        Some(FileKind::Symlink) => parent.redirect_link(name, &link)?,
        Some(_) => return place(source, &parent, name, mounter),
    }
    injected_dir.file(source, path);
    Ok(())
}
