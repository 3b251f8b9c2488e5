//! What is done in the container's mount namespace.

use std::path::Path;

use super::ApplyError;
use super::home::Home;
use super::loader;
use super::sources::{Ready, What};
use crate::container::{self, ContainerRoot, FileKind, Owner};
use crate::mount::{KernelCalls, Mounter, Source};

/// Puts everything in its place.
pub(super) fn attach(
    ready: Vec<Ready>,
    root: &ContainerRoot,
    calls: KernelCalls,
    label: Option<&str>,
    notes: &mut Vec<String>,
) -> Result<(), ApplyError> {
    let mut mounter = Mounter::new(root, calls);
    let mut home = Home::default();
    let mut loaders = Vec::new();
    for Ready { what, why } in ready {
        let done = match what {
            What::Mask(mask) => mask.attach(root, &mut mounter, label),
            What::Directory { source, path } => place(source, &path, root, &mut mounter),
            What::Node {
                source,
                path,
                number,
                own,
            } => match own {
                Some(own) if root.owner() == Owner::HOST_ROOT => {
                    root.make_device(&path, number, own).map_err(Into::into)
                }
                // A node that is made under a mapped root can't be opened.
                Some(own) => {
                    notes.push(format!(
                        "{}: the container has a user namespace and gets the host's node; to open \
                         it, its user has to be in the host's group that owns it, not in {}",
                        path.display(),
                        own.gid
                    ));
                    place(source, &path, root, &mut mounter)
                }
                None => place(source, &path, root, &mut mounter),
            },
            What::File { source, path } => {
                file(source, path.as_path(), root, &mut mounter, &mut home)
            }
            What::Library {
                source,
                path,
                links,
            } => home.library(source, &path, links),
            What::Loader(searched) => {
                loaders.push(searched);
                Ok(())
            }
        };
        done.map_err(|error| error.why(&why))?;
    }
    home.attach(root, &mut mounter, label)?;
    for searched in loaders {
        loader::configure(root, &searched, notes)?;
    }
    Ok(())
}

/// Puts a source on a path, unless it shows there already: a hook may run twice.
fn place(
    source: Source,
    path: &Path,
    root: &ContainerRoot,
    mounter: &mut Mounter,
) -> Result<(), ApplyError> {
    let target = root.mount_point(path, source.kind())?;
    if !target.shows(source.identity()) {
        mounter.attach(source, &target)?;
    }
    Ok(())
}

/// Puts a file over the one that the image has, or else makes a link to where
/// it will lie: an empty file in the image's layer would stay behind.
fn file(
    source: Source,
    path: &Path,
    root: &ContainerRoot,
    mounter: &mut Mounter,
    home: &mut Home,
) -> Result<(), ApplyError> {
    match root.symlink(path, &Home::place_of(path)) {
        Ok(()) => {
            home.file(source, path);
            Ok(())
        }
        Err(container::Error::Occupied {
            found: FileKind::Regular | FileKind::Socket,
            ..
        }) => place(source, path, root, mounter),
        Err(error) => Err(error.into()),
    }
}
