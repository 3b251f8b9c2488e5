//! The steps of a plan that are done in the container's mount namespace.

use std::path::Path;

use device_class::discover::MadeNode;

use super::ApplyError;
use super::image_names::{self, ImageDirectories, NamedLibrary};
use super::injected_dir::InjectedDir;
use super::loader;
use super::sources::{OpenedAction, OpenedStep, device_access};
use crate::container::{ContainerRoot, DeviceAccess, FileKind, Name, Parent};
use crate::mount::{KernelCalls, Mounter, Source};

pub(crate) fn attach(
    ready: Vec<OpenedStep<'_>>,
    root: &ContainerRoot,
    calls: KernelCalls,
    label: Option<&str>,
    notes: &mut Vec<String>,
) -> Result<(), ApplyError> {
    let mut mounter = Mounter::new(root, calls);
    let mut injected_dir = InjectedDir::default();
    let mut loaders = Vec::new();
    let mut libraries = Vec::new();
    for OpenedStep { action, reason, .. } in ready {
        let done = match action {
            OpenedAction::Mask(mask) => mask.attach(root, &mut mounter, label),
            OpenedAction::Directory { source, path } => {
                mount_at_path(source, path, root, &mut mounter)
            }
            OpenedAction::Node {
                source,
                path,
                number,
                own,
            } => match own_node(own, path, root, notes) {
                Some(own) => root.make_device(path, number, own).map_err(Into::into),
                None => mount_at_path(source, path, root, &mut mounter),
            },
            OpenedAction::MakeNode { path, number, made } => {
                if root.can_make_devices() {
                    root.make_device(path, number, device_access(made.own))
                        .map_err(Into::into)
                } else {
                    Err(not_on_host(path, made))
                }
            }
            OpenedAction::Link { path, target } => create_link(path, target, root),
            OpenedAction::File { source, path } => {
                mount_file(source, path, root, &mut mounter, &mut injected_dir)
            }
            OpenedAction::Library {
                source,
                path,
                links,
                names,
                image_links,
            } => {
                libraries.push(NamedLibrary {
                    path,
                    identity: source.identity(),
                    names,
                    image_links,
                });
                injected_dir.library(source, path, links)
            }
            OpenedAction::Loader(search) => {
                loaders.push(search);
                Ok(())
            }
        };
        done.map_err(|error| error.with_subject(reason))?;
    }
    injected_dir.attach(root, &mut mounter, label)?;
    for search in loaders {
        let directories = ImageDirectories {
            library_path: search.library_path,
            directory_32bit: search.directory_32bit,
            newer: loader::configure(root, search, notes)?,
        };
        image_names::place_names(root, &mut mounter, &libraries, &directories, notes)?;
    }
    Ok(())
}

/// Removes masks of a container that runs which list other devices than the new ones.
pub(crate) fn remove_outdated_masks(
    ready: &[OpenedStep<'_>],
    root: &ContainerRoot,
) -> Result<(), ApplyError> {
    ready.iter().try_for_each(|step| match &step.action {
        OpenedAction::Mask(mask) => mask
            .remove_outdated(root)
            .map_err(|error| error.with_subject(step.reason)),
        _ => Ok(()),
    })
}

/// Returns the mode and owner of a node that is created in the container, or `None` if the
/// node of the host is mounted.
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

/// Creates a symbolic link. An existing file with this name is kept: the directory that the
/// host mounts there, or the link that the hook created in an earlier run.
fn create_link(path: &Path, target: &Path, root: &ContainerRoot) -> Result<(), ApplyError> {
    let (parent, name) = root.parent(path)?;
    match parent.open(name)? {
        None => Ok(parent.symlink(name, target)?),
        Some(_) => Ok(()),
    }
}

fn mount_at_path(
    source: Source,
    path: &Path,
    root: &ContainerRoot,
    mounter: &mut Mounter,
) -> Result<(), ApplyError> {
    let (parent, name) = root.parent(path)?;
    mount_at_name(source, &parent, name, mounter)
}

/// Mounts a source at a name. Nothing is done if the name leads to the source already, because
/// a hook may run twice.
fn mount_at_name(
    source: Source,
    parent: &Parent,
    name: Name<'_>,
    mounter: &mut Mounter,
) -> Result<(), ApplyError> {
    let target = parent.mount_point(name, source.kind())?;
    if !target.is_file(source.identity()) {
        mounter.attach(source, &target)?;
    }
    Ok(())
}

/// Mounts a file over the one that the image has. If the image has none, a symbolic link to
/// the file's place in the hook's own directory is created, because an empty file as the mount
/// point would stay in the layer of the image.
///
/// A symbolic link of the image is redirected to that place too. It must not be followed and
/// its target covered, because the target may be used by other programs (`/bin/busybox`).
fn mount_file<'p>(
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
        Some(_) => return mount_at_name(source, &parent, name, mounter),
    }
    injected_dir.file(source, path);
    Ok(())
}
