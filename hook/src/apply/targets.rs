//! Carries out the steps of a plan in the container's mount namespace. All sources were opened in the
//! host's mount namespace before, so that no path of the host is used here.

use std::path::{Path, PathBuf};

use device_class::device::DeviceNumber;
use device_class::discover::MadeNode;
use rooted_path::split_leaf;

use super::ApplyError;
use super::image_names::{self, ImageDirectories, NamedLibrary};
use super::injected_dir::InjectedDir;
use super::loader;
use super::sources::{OpenedAction, OpenedStep, device_access};
use crate::container::{ContainerRoot, DeviceAccess, FileKind, Name, Parent};
use crate::mount::{KernelCalls, Mounter, Source};

/// Creates and mounts the targets of all steps. Adds warnings for steps that are done in part.
pub(crate) fn attach(
    ready: Vec<OpenedStep<'_>>,
    root: &ContainerRoot,
    calls: KernelCalls,
    label: Option<&str>,
    warnings: &mut Vec<String>,
) -> Result<(), ApplyError> {
    let mut mounter = Mounter::new(root, calls);
    let mut parents = ParentCache::new(root);
    let mut injected_dir = InjectedDir::default();
    let mut loaders = Vec::new();
    let mut libraries = Vec::new();
    for OpenedStep { action, reason, .. } in ready {
        let done = match action {
            OpenedAction::Mask(mask) => {
                parents.clear();
                mask.attach(root, &mut mounter, label)
            }
            OpenedAction::Directory { source, path } => {
                parents.clear();
                mount_at_path(source, path, &mut parents, &mut mounter)
            }
            OpenedAction::Node {
                source,
                path,
                number,
                own,
            } => match choose_own_node(own, path, root, warnings) {
                Some(own) => make_device(path, number, own, &mut parents),
                None => mount_at_path(source, path, &mut parents, &mut mounter),
            },
            OpenedAction::MakeNode { path, number, made } => {
                if root.can_make_devices() {
                    make_device(path, number, device_access(made.own), &mut parents)
                } else {
                    Err(not_on_host_error(path, made))
                }
            }
            OpenedAction::Link { path, target } => create_link(path, target, &mut parents),
            OpenedAction::File { source, path } => {
                mount_file(source, path, &mut parents, &mut mounter, &mut injected_dir)
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
                injected_dir.add_library(source, path, links)
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
            newer: loader::configure(root, search, warnings)?,
        };
        image_names::place_names(root, &mut mounter, &libraries, &directories, warnings)?;
    }
    Ok(())
}

/// Removes masks from a running container if they list other devices than the new masks.
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
fn choose_own_node(
    own: Option<DeviceAccess>,
    path: &Path,
    root: &ContainerRoot,
    warnings: &mut Vec<String>,
) -> Option<DeviceAccess> {
    let own = own?;
    if root.can_make_devices() {
        return Some(own);
    }
    warnings.push(format!(
        "{}: the container has a user namespace and gets the host's node; to open it, its user \
         has to be in the host's group that owns it, not in {}",
        path.display(),
        own.gid
    ));
    None
}

fn not_on_host_error(path: &Path, made: &MadeNode) -> ApplyError {
    ApplyError::NodeNotOnHost {
        path: path.to_owned(),
        driver: made.driver.clone(),
        advice: made.advice.clone(),
    }
}

/// Keeps the directory of the last step open. The steps of a plan are sorted by path, so that many
/// in a row are in one directory, which is resolved and checked only once.
struct ParentCache<'r> {
    root: &'r ContainerRoot,
    last: Option<(PathBuf, Parent)>,
}

impl<'r> ParentCache<'r> {
    fn new(root: &'r ContainerRoot) -> Self {
        Self { root, last: None }
    }

    /// Returns the directory of `path` and the last component. Missing directories are created.
    fn find<'p>(&mut self, path: &'p Path) -> Result<(&Parent, Name<'p>), ApplyError> {
        let (directory, name) = split_leaf(path)?;
        let last = match self.last.take() {
            Some(last) if last.0 == directory => last,
            _ => (directory.to_owned(), self.root.parent(path)?.0),
        };
        Ok((&self.last.insert(last).1, name))
    }

    /// Closes the directory. This is necessary before a directory is mounted, which may cover it.
    fn clear(&mut self) {
        self.last = None;
    }
}

fn make_device(
    path: &Path,
    number: DeviceNumber,
    access: DeviceAccess,
    parents: &mut ParentCache<'_>,
) -> Result<(), ApplyError> {
    let (parent, name) = parents.find(path)?;
    Ok(parent.make_device(name, number, access)?)
}

/// Creates a symbolic link. An existing file with this name is kept: the directory that the
/// host mounts there, or the link that the hook created in an earlier run.
fn create_link(
    path: &Path,
    target: &Path,
    parents: &mut ParentCache<'_>,
) -> Result<(), ApplyError> {
    let (parent, name) = parents.find(path)?;
    parent.symlink_or_find(name, target)?;
    Ok(())
}

fn mount_at_path(
    source: Source,
    path: &Path,
    parents: &mut ParentCache<'_>,
    mounter: &mut Mounter,
) -> Result<(), ApplyError> {
    let (parent, name) = parents.find(path)?;
    mount_at_name(source, parent, name, mounter)
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
    parents: &mut ParentCache<'_>,
    mounter: &mut Mounter,
    injected_dir: &mut InjectedDir<'p>,
) -> Result<(), ApplyError> {
    let (parent, name) = parents.find(path)?;
    let link = InjectedDir::inner_path(path);
    match parent.symlink_or_find(name, &link)? {
        None => {}
        Some(FileKind::Symlink) => parent.redirect_link(name, &link)?,
        Some(_) => return mount_at_name(source, parent, name, mounter),
    }
    injected_dir.add_file(source, path);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::container::Resolver;

    /// A directory is resolved once for the steps in a row that are in it, and again after a
    /// directory was mounted, which may have covered it.
    #[test]
    fn steps_in_one_directory_share_its_handle() {
        let top = tempfile::tempdir().unwrap();
        let root = ContainerRoot::open(top.path(), Resolver::Walk).unwrap();
        let mut parents = ParentCache::new(&root);
        let mut identity = |path: &str, forget: bool| {
            if forget {
                parents.clear();
            }
            let (parent, _) = parents.find(Path::new(path)).unwrap();
            parent.identity().unwrap()
        };
        let first = identity("/d/a", false);
        fs::rename(top.path().join("d"), top.path().join("moved")).unwrap();
        assert_eq!(identity("/d/b", false), first);
        let created = identity("/d/c", true);
        assert_ne!(created, first);
        assert_eq!(identity("/moved/e", false), first);
        assert_eq!(identity("/d/f", false), created);
    }

    #[test]
    fn a_link_is_created_only_where_no_file_is() {
        let top = tempfile::tempdir().unwrap();
        let root = ContainerRoot::open(top.path(), Resolver::Walk).unwrap();
        fs::write(top.path().join("file"), "").unwrap();
        std::os::unix::fs::symlink("elsewhere", top.path().join("link")).unwrap();
        std::os::unix::fs::symlink("target", top.path().join("same")).unwrap();
        for (path, found, text) in [
            ("/new", None, Some("target")),
            ("/same", None, Some("target")),
            ("/link", Some(FileKind::Symlink), Some("elsewhere")),
            ("/file", Some(FileKind::Regular), None),
        ] {
            let (parent, name) = root.parent(Path::new(path)).unwrap();
            let kind = parent.symlink_or_find(name, Path::new("target")).unwrap();
            assert_eq!(kind, found, "{path}");
            let link = fs::read_link(top.path().join(&path[1..])).ok();
            assert_eq!(link.as_deref(), text.map(Path::new), "{path}");
        }
    }
}
