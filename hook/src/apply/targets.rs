//! Carries out the steps of an injection plan in the container's mount namespace. All files of the
//! host were opened before in the host's mount namespace. Here, their paths lead to the container's
//! files.

use std::path::{Path, PathBuf};

use device_class::device::DeviceNumber;
use device_class::discover::CreatedNode;
use host_files::rooted_path::split_leaf;

use super::ApplyError;
use super::image_names::{self, ImageDirectories, LibraryNames};
use super::injected_dir::InjectedDir;
use super::loader;
use super::sources::{OpenedAction, OpenedStep, to_device_access};
use crate::container::{ContainerRoot, DeviceAccess, FileKind, FileName, Parent};
use crate::log::format_error_chain;
use crate::mount::{MountSource, Mounter, SyscallSupport};

/// Carries out all injection steps: creates and mounts the files in the container. Adds a warning
/// for each step that was not carried out as planned, for example if an optional file was left out.
pub fn apply_steps(
    steps: Vec<OpenedStep<'_>>,
    root: &ContainerRoot,
    syscall_support: SyscallSupport,
    mount_label: Option<&str>,
    warnings: &mut Vec<String>,
) -> Result<(), ApplyError> {
    let mut mounter = Mounter::new(root, syscall_support);
    let mut parent_cache = ParentCache::new(root);
    let mut injected_dir = InjectedDir::default();
    let mut library_searches = Vec::new();
    let mut libraries = Vec::new();
    for OpenedStep {
        action,
        owner_labels,
        ..
    } in steps
    {
        let result = match action {
            OpenedAction::Mask(mask) => {
                parent_cache.clear();
                let is_optional = mask.is_optional();
                let result = mask.attach(root, &mut mounter, mount_label);
                allow_missing_path(is_optional, result, owner_labels, warnings)
            }
            OpenedAction::Directory {
                source,
                path,
                is_optional,
            } => {
                parent_cache.clear();
                let result = mount_at_path(source, path, &mut parent_cache, &mut mounter);
                allow_missing_path(is_optional, result, owner_labels, warnings)
            }
            OpenedAction::Node {
                source,
                path,
                number,
                host_node_access,
                created_node_access: Some(access),
            } => {
                if root.can_create_device_nodes() {
                    match create_device_node(path, number, access, &mut parent_cache) {
                        // Another file is at the path, such as a node from an outdated CDI
                        // specification, or this process may not create nodes. The host's node is
                        // mounted instead, because it has the same mode and owner as planned.
                        Err(error)
                            if access == host_node_access
                                && (error.is_path_unusable() || error.is_denied()) =>
                        {
                            mount_at_path(source, path, &mut parent_cache, &mut mounter)
                        }
                        result => result,
                    }
                } else {
                    if access != host_node_access {
                        warnings.push(warn_node_has_host_access(path, access));
                    }
                    mount_at_path(source, path, &mut parent_cache, &mut mounter)
                }
            }
            OpenedAction::Node { source, path, .. } => {
                mount_at_path(source, path, &mut parent_cache, &mut mounter)
            }
            OpenedAction::MakeNode {
                path,
                number,
                created_node,
            } => {
                let result = if root.can_create_device_nodes() {
                    create_device_node(
                        path,
                        number,
                        to_device_access(created_node.permissions),
                        &mut parent_cache,
                    )
                } else {
                    Err(not_on_host_error(path, created_node))
                };
                allow_missing_path(created_node.is_optional, result, owner_labels, warnings)
            }
            OpenedAction::Link { path, target } => create_link(path, target, &mut parent_cache),
            OpenedAction::File {
                source,
                path,
                is_optional,
            } => {
                let result = mount_file(
                    source,
                    path,
                    &mut parent_cache,
                    &mut mounter,
                    &mut injected_dir,
                );
                allow_missing_path(is_optional, result, owner_labels, warnings)
            }
            OpenedAction::Library {
                source,
                path,
                links,
                names,
                image_links,
            } => {
                libraries.push(LibraryNames {
                    path,
                    identity: source.identity(),
                    names,
                    image_links,
                });
                injected_dir.add_library(source, path, links)
            }
            OpenedAction::Loader(search) => {
                library_searches.push(search);
                Ok(())
            }
        };
        result.map_err(|error| error.with_owner_labels(owner_labels))?;
    }
    injected_dir.attach(root, &mut mounter, mount_label)?;
    for search in library_searches {
        let directories = ImageDirectories {
            library_path_dirs: search.library_path_dirs,
            directory_32bit: search.directory_32bit,
            dirs_with_newer_libraries: loader::configure_loaders(root, search, warnings)?,
        };
        image_names::add_library_names(root, &mut mounter, &libraries, &directories, warnings)?;
    }
    Ok(())
}

/// Unmounts outdated masks of a running container, which are mounts that hide links to other
/// devices. A mask is outdated if it lists other devices than the new mask in `steps`.
pub fn remove_outdated_masks(
    steps: &[OpenedStep<'_>],
    root: &ContainerRoot,
) -> Result<(), ApplyError> {
    steps.iter().try_for_each(|step| match &step.action {
        OpenedAction::Mask(mask) => mask
            .remove_outdated_mask(root)
            .map_err(|error| error.with_owner_labels(step.owner_labels)),
        _ => Ok(()),
    })
}

/// Returns success in place of an error if a file that the container does not need cannot be at its
/// path, and adds a warning. All other results are returned unchanged.
fn allow_missing_path(
    is_optional: bool,
    result: Result<(), ApplyError>,
    owner_labels: &str,
    warnings: &mut Vec<String>,
) -> Result<(), ApplyError> {
    match result {
        Err(error) if is_optional && error.is_path_unusable() => {
            let reason = format_error_chain(&error);
            warnings.push(format!(
                "{owner_labels}: {reason}; the container starts without this file, which is \
                 optional: remove what is there from the image or its mounts"
            ));
            Ok(())
        }
        Err(error @ ApplyError::NodeNotOnHost { .. }) if is_optional => {
            let reason = format_error_chain(&error);
            warnings.push(format!(
                "{owner_labels}: {reason}; the container starts without this node, which is optional"
            ));
            Ok(())
        }
        result => result,
    }
}

/// Returns the warning for a node that has the host's mode and owner in place of the planned ones.
/// In a container with a user namespace, a new node could not be opened, so the host's node is
/// mounted.
fn warn_node_has_host_access(path: &Path, access: DeviceAccess) -> String {
    format!(
        "{}: the container has a user namespace and gets the host's node; to open it, its user \
         has to be in the host's group that owns it, not in {}",
        path.display(),
        access.gid
    )
}

fn not_on_host_error(path: &Path, created_node: &CreatedNode) -> ApplyError {
    ApplyError::NodeNotOnHost {
        path: path.to_owned(),
        driver: created_node.driver.clone(),
        advice: created_node.advice.clone(),
    }
}

/// A cache of one open directory: the parent directory of the last step's path. The steps of a plan
/// are sorted by path, so a directory with many files is opened and checked only once.
struct ParentCache<'r> {
    root: &'r ContainerRoot,
    last_parent: Option<(PathBuf, Parent)>,
}

impl<'r> ParentCache<'r> {
    fn new(root: &'r ContainerRoot) -> Self {
        Self {
            root,
            last_parent: None,
        }
    }

    /// Returns the parent directory of `path`, from the cache if possible. Creates missing
    /// directories. The second value is the last component of `path`.
    fn open_or_create_parent<'p>(
        &mut self,
        path: &'p Path,
    ) -> Result<(&Parent, FileName<'p>), ApplyError> {
        let (directory, name) = split_leaf(path)?;
        let parent = match self.last_parent.take() {
            Some(parent) if parent.0 == directory => parent,
            _ => (
                directory.to_owned(),
                self.root.open_or_create_parent(path)?.0,
            ),
        };
        Ok((&self.last_parent.insert(parent).1, name))
    }

    /// Closes the cached directory. The caller must do this before it mounts over a directory. The
    /// mount may hide the cached directory, and new files there would be invisible.
    fn clear(&mut self) {
        self.last_parent = None;
    }
}

fn create_device_node(
    path: &Path,
    number: DeviceNumber,
    access: DeviceAccess,
    parent_cache: &mut ParentCache<'_>,
) -> Result<(), ApplyError> {
    let (parent, name) = parent_cache.open_or_create_parent(path)?;
    Ok(parent.create_device_node(name, number, access)?)
}

/// Creates a symbolic link. If a file already exists at the path, it stays: it may be a directory
/// that the engine has mounted, or the link from an earlier run of the hook.
fn create_link(
    path: &Path,
    target: &Path,
    parent_cache: &mut ParentCache<'_>,
) -> Result<(), ApplyError> {
    let (parent, name) = parent_cache.open_or_create_parent(path)?;
    parent.symlink_if_absent(name, target)?;
    Ok(())
}

fn mount_at_path(
    source: MountSource,
    path: &Path,
    parent_cache: &mut ParentCache<'_>,
    mounter: &mut Mounter,
) -> Result<(), ApplyError> {
    let (parent, name) = parent_cache.open_or_create_parent(path)?;
    mount_on_entry(source, parent, name, mounter)
}

/// Mounts a source on the entry `name` of a directory. Does nothing if the source is already
/// mounted there, because the hook may run twice.
fn mount_on_entry(
    source: MountSource,
    parent: &Parent,
    name: FileName<'_>,
    mounter: &mut Mounter,
) -> Result<(), ApplyError> {
    let target = parent.open_or_create_mount_point(name, source.kind())?;
    if !target.has_identity(source.identity()) {
        mounter.attach(source, &target)?;
    }
    Ok(())
}

/// Mounts a file over the image's file at `path`. If the image has no file there, mounts the file
/// in the hook's own directory, and creates a symbolic link at `path`. Otherwise an empty file as a
/// mount point would stay in the container's writable layer.
///
/// If the image has a symbolic link at `path`, the link is changed so that it leads to the hook's
/// own directory. Nothing is mounted over the link's target, because other links may lead to it as
/// well, as to `/bin/busybox`.
fn mount_file<'p>(
    source: MountSource,
    path: &'p Path,
    parent_cache: &mut ParentCache<'_>,
    mounter: &mut Mounter,
    injected_dir: &mut InjectedDir<'p>,
) -> Result<(), ApplyError> {
    let (parent, name) = parent_cache.open_or_create_parent(path)?;
    let link_target = InjectedDir::to_injected_path(path);
    match parent.symlink_if_absent(name, &link_target)? {
        None => {}
        Some(FileKind::Symlink) => parent.replace_symlink_target(name, &link_target)?,
        Some(_) => return mount_on_entry(source, parent, name, mounter),
    }
    injected_dir.add_file(source, path);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use device_class::device::DeviceKind;
    use injection_plan::plan::{
        Action, BindMount, InjectionPlan, InjectionStep, MountAttributes, SourceKind,
    };
    use nix::mount::{MntFlags, MsFlags, mount, umount2};
    use nix::sched::{CloneFlags, unshare};

    use super::*;
    use crate::apply::sources::open_sources;
    use crate::container::Resolver;
    use crate::mount::SourceRoot;

    /// A directory is resolved once for the steps in a row that are in it, and again after a
    /// directory was mounted, which may have covered it.
    #[test]
    fn steps_in_one_directory_share_its_handle() {
        let top = tempfile::tempdir().unwrap();
        let root = ContainerRoot::open(top.path(), Resolver::Walk).unwrap();
        let mut parent_cache = ParentCache::new(&root);
        let mut identity = |path: &str, forget: bool| {
            if forget {
                parent_cache.clear();
            }
            let (parent, _) = parent_cache.open_or_create_parent(Path::new(path)).unwrap();
            parent.identity().unwrap()
        };
        let first_identity = identity("/d/a", false);
        fs::rename(top.path().join("d"), top.path().join("moved")).unwrap();
        assert_eq!(identity("/d/b", false), first_identity);
        let new_identity = identity("/d/c", true);
        assert_ne!(new_identity, first_identity);
        assert_eq!(identity("/moved/e", false), first_identity);
        assert_eq!(identity("/d/f", false), new_identity);
    }

    #[test]
    fn a_link_is_created_only_where_no_file_is() {
        let top = tempfile::tempdir().unwrap();
        let root = ContainerRoot::open(top.path(), Resolver::Walk).unwrap();
        fs::write(top.path().join("file"), "").unwrap();
        std::os::unix::fs::symlink("elsewhere", top.path().join("link")).unwrap();
        std::os::unix::fs::symlink("target", top.path().join("same")).unwrap();
        for (path, expected_kind, text) in [
            ("/new", None, Some("target")),
            ("/same", None, Some("target")),
            ("/link", Some(FileKind::Symlink), Some("elsewhere")),
            ("/file", Some(FileKind::Regular), None),
        ] {
            let (parent, name) = root.open_or_create_parent(Path::new(path)).unwrap();
            let kind = parent.symlink_if_absent(name, Path::new("target")).unwrap();
            assert_eq!(kind, expected_kind, "{path}");
            let link = fs::read_link(top.path().join(&path[1..])).ok();
            assert_eq!(link.as_deref(), text.map(Path::new), "{path}");
        }
    }

    /// A new node replaces no file of the container. The host's node covers it, as it would without
    /// a label.
    #[test]
    fn a_file_in_the_way_of_a_new_node_is_covered() {
        if !nix::unistd::geteuid().is_root() {
            return skip::report(module_path!(), "needs root");
        }
        let null_device = Path::new("/dev/null");
        let number = DeviceNumber {
            kind: DeviceKind::Character,
            major: 1,
            minor: 3,
        };
        let plan = InjectionPlan {
            steps: vec![InjectionStep {
                action: Action::Node {
                    mount: BindMount {
                        source: null_device.to_owned(),
                        path: null_device.to_owned(),
                        source_kinds: &[SourceKind::Device],
                        recursive: false,
                        attributes: MountAttributes::default(),
                        is_optional: false,
                        is_image_module: false,
                    },
                    number,
                    created_node_permissions: None,
                },
                owner_labels: "null".to_owned(),
                owners: Vec::new(),
            }],
            ..InjectionPlan::default()
        };
        // The mount namespace of another thread keeps the mount away from this machine.
        let attach = move |has_file: bool| {
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            let (none, flags) = (None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE);
            mount(none, "/", none, flags, none).unwrap();
            let top = tempfile::tempdir().unwrap();
            let node = top.path().join("dev/null");
            fs::create_dir(top.path().join("dev")).unwrap();
            if has_file {
                fs::write(&node, "").unwrap();
            }
            let support = SyscallSupport::probe();
            let host = SourceRoot::open(Path::new("/"), support.resolver()).unwrap();
            let steps = open_sources(&plan, &host, support, Some("label")).unwrap();
            let root = ContainerRoot::open(top.path(), support.resolver()).unwrap();
            apply_steps(steps, &root, support, None, &mut Vec::new()).unwrap();
            assert_eq!(fs::metadata(&node).unwrap().rdev(), 0x103);
            let is_mounted = umount2(&node, MntFlags::MNT_DETACH).is_ok();
            assert_eq!(is_mounted, has_file);
        };
        for has_file in [false, true] {
            let attach = attach.clone();
            std::thread::spawn(move || attach(has_file)).join().unwrap();
        }
    }
}
