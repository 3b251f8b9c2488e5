//! Mounts masks in a container. A mask is a read-only tmpfs that is mounted over a directory. It
//! hides the contents of the directory, except for selected files and links. For example, it hides
//! other devices in `/sys/class/npu`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use device_class::discover::is_sysfs_link_directory;
use injection_plan::plan::{Action, InjectionPlan};
use nix::sys::stat::Mode;

use super::ApplyError;
use super::tmpfs::{self, TmpfsDirectories};
use crate::container::{
    self, ContainerNamespace, ContainerRoot, FileKind, MountTarget, read_link_target,
};
use crate::mount::{self, MountSource, Mounter, TmpfsOptions};

/// A read-only tmpfs that hides the contents of the directory `path` in the container. Only the
/// files, links and mounts in the fields of this structure are visible.
pub struct Mask<'p> {
    pub path: &'p Path,
    /// Whether the hook creates the directory if the container does not have it. If false, the mask
    /// is left out in a container without the directory.
    pub(super) should_create_dir: bool,
    /// The files that are created in the mask, with their paths and contents.
    pub(super) files: &'p BTreeMap<PathBuf, String>,
    /// The symbolic links that are created in the mask, with their paths and targets.
    pub(super) links: &'p BTreeMap<PathBuf, PathBuf>,
    /// The files of the host that are mounted in the mask, each with its path in the container.
    pub(super) visible_files: Vec<(MountSource, &'p Path)>,
}

/// The size limit of the tmpfs in bytes. Only the contents of created files count. The contents of
/// mounted files do not count, because they are in other file systems.
const TMPFS_SIZE_LIMIT_BYTES: u64 = 1 << 20;

/// The maximum number of names that a mask of a container is expected to list.
pub(super) const MAX_NAMES: usize = 4096;

const DIRECTORY_MODE: Mode = Mode::from_bits_truncate(0o555);
const FILE_MODE: Mode = Mode::from_bits_truncate(0o444);

impl<'p> Mask<'p> {
    /// Returns a mask over the directory `path` that contains only symbolic links. `no_files` is an
    /// empty map.
    pub(super) fn from_links(
        path: &'p Path,
        links: &'p BTreeMap<PathBuf, PathBuf>,
        no_files: &'p BTreeMap<PathBuf, String>,
    ) -> Self {
        Mask {
            path,
            should_create_dir: false,
            files: no_files,
            links,
            visible_files: Vec::new(),
        }
    }

    /// Reports whether the mask only adds files that a container normally does not have. Such a
    /// mask hides no device, so the container can start without it.
    pub(super) fn is_optional(&self) -> bool {
        self.should_create_dir && self.links.is_empty() && self.visible_files.is_empty()
    }

    /// Mounts the mask over the directory. If the container does not have the directory, creates
    /// the directory or does nothing, as `should_create_dir` says. Does nothing if the mask is
    /// already mounted, because the hook may run twice.
    pub(super) fn attach(
        self,
        root: &ContainerRoot,
        mounter: &mut Mounter,
        mount_label: Option<&str>,
    ) -> Result<(), ApplyError> {
        let target = if self.should_create_dir {
            Some(root.open_or_create_mount_point(self.path, FileKind::Directory)?)
        } else {
            root.open_mount_point(self.path, FileKind::Directory)?
        };
        let Some(target) = target else {
            return Ok(());
        };
        if self.is_complete(root, &target)? {
            return Ok(());
        }
        let options = TmpfsOptions {
            size_bytes: TMPFS_SIZE_LIMIT_BYTES,
            mode: DIRECTORY_MODE,
            label: mount_label,
        };
        let staged_tmpfs = mounter.create_tmpfs(target, &options)?;
        let mut directories = TmpfsDirectories::new(staged_tmpfs.directory());
        for (path, expected_content) in self.files {
            let (directory, name) = directories.create_parent(to_relative_path(self.path, path))?;
            directory.write_new_file(name, expected_content.as_bytes(), FILE_MODE)?;
        }
        for (path, target) in self.links {
            let (directory, name) = directories.create_parent(to_relative_path(self.path, path))?;
            directory.symlink(name, target)?;
        }
        let mut mounts = Vec::with_capacity(self.visible_files.len());
        for (source, path) in self.visible_files {
            let (directory, name) = directories.create_parent(to_relative_path(self.path, path))?;
            let target = directory.open_or_create_mount_point(name, source.kind())?;
            mounts.push((source, target));
        }
        tmpfs::attach_with_mounts(staged_tmpfs, mounts, mounter)
    }

    /// Reports whether this mask is mounted in the container.
    pub(super) fn is_mounted(&self, root: &ContainerRoot) -> Result<bool, ApplyError> {
        match root.open_mount_point(self.path, FileKind::Directory)? {
            Some(target) => self.is_complete(root, &target),
            None => Ok(false),
        }
    }

    /// Reports whether a tmpfs with all contents of the mask is already mounted.
    ///
    /// The file system must be a tmpfs: equal contents alone do not prove that the mask is mounted.
    /// For example, a container in the host's PID namespace sees the host's `/proc`, which may have
    /// the same contents.
    fn is_complete(&self, root: &ContainerRoot, target: &MountTarget) -> Result<bool, ApplyError> {
        if !target.is_tmpfs()? {
            return Ok(false);
        }
        for (source, path) in &self.visible_files {
            if !tmpfs::is_mounted_at(root, path, source)? {
                return Ok(false);
            }
        }
        for (path, expected_content) in self.files {
            // The read limit is the length of the expected content. So the read of a longer file
            // fails, and the file counts as different.
            let content = root
                .read_file(path, expected_content.len())
                .unwrap_or_default();
            if content.as_deref() != Some(expected_content.as_bytes()) {
                return Ok(false);
            }
        }
        for (path, target) in self.links {
            if find_link_target(root, path)?.as_ref() != Some(target) {
                return Ok(false);
            }
        }
        // A mask below `/sys/class` or `/sys/bus` contains only links to devices. It must not list
        // any other name, such as that of a device that was unplugged.
        Ok(!is_sysfs_link_directory(self.path)
            || self.list_entry_names(root)? == self.list_planned_names())
    }

    /// Unmounts the existing mask at this path in a running container, if it lists other devices
    /// than this mask. The caller then mounts this mask.
    ///
    /// Only a mask that hides nothing but links is unmounted. The files that another mask hides
    /// would be visible until the new mask is mounted.
    pub(crate) fn remove_outdated_mask(&self, root: &ContainerRoot) -> Result<(), ApplyError> {
        if !is_sysfs_link_directory(self.path) {
            return Ok(());
        }
        let target = root.open_mount_point(self.path, FileKind::Directory)?;
        if let Some(target) = target
            && target.is_tmpfs()?
            && !self.is_complete(root, &target)?
        {
            mount::unmount(&target.reopen_by_name()?, self.path, root.procfs())?;
        }
        Ok(())
    }

    /// Returns the names that the directory in the container lists now. Fails if there are more
    /// than [`MAX_NAMES`].
    fn list_entry_names(&self, root: &ContainerRoot) -> Result<BTreeSet<OsString>, ApplyError> {
        let Some(directory) = root.open_directory(self.path)? else {
            return Ok(BTreeSet::new());
        };
        Ok(directory.list_entry_names(MAX_NAMES)?.into_iter().collect())
    }

    /// Returns the names that the directory will list after this mask is mounted: the first
    /// component of each path in the mask.
    fn list_planned_names(&self) -> BTreeSet<OsString> {
        let visible_paths = self.visible_files.iter().map(|(_, path)| *path);
        let created_paths = self.files.keys().chain(self.links.keys());
        list_names_in(
            self.path,
            created_paths.map(PathBuf::as_path).chain(visible_paths),
        )
    }
}

/// Returns the names that `directory` lists if it contains `paths`: the first component of each
/// path below the directory.
fn list_names_in<'p>(
    directory: &Path,
    paths: impl Iterator<Item = &'p Path>,
) -> BTreeSet<OsString> {
    let names = paths.filter_map(|path| to_relative_path(directory, path).iter().next());
    names.map(OsStr::to_owned).collect()
}

/// Returns the target of the symbolic link at a path in the container. Returns `None` if there is
/// no symbolic link at this path.
fn find_link_target(root: &ContainerRoot, path: &Path) -> Result<Option<PathBuf>, ApplyError> {
    let Some((parent, name)) = root.open_parent(path)? else {
        return Ok(None);
    };
    Ok(parent.open(name)?.as_ref().and_then(read_link_target))
}

/// Reports whether a running container has a mask whose links to devices differ from those of the
/// injection step `action`. The kernel creates the links of a device one after the other, so a link
/// can appear or disappear after the container got the device.
///
/// Only a mask below `/sys/class` or `/sys/bus` is examined. For any other step, and in a container
/// without the directory, the result is false. If the directory has no mask, the result is
/// `was_mounted`. This argument says whether the mask was mounted before: the replacement of a mask
/// may have been interrupted after the old mask was unmounted.
pub fn has_outdated_links(
    action: &Action,
    namespace: &ContainerNamespace,
    was_mounted: bool,
) -> Result<bool, container::Error> {
    let Action::Mask {
        path,
        links,
        files,
        visible_mounts,
        ..
    } = action
    else {
        return Ok(false);
    };
    if !is_sysfs_link_directory(path) {
        return Ok(false);
    }
    let Some(directory) = namespace.open_directory(path)? else {
        return Ok(false);
    };
    if !directory.is_tmpfs()? {
        return Ok(was_mounted);
    }
    let created_paths = links.keys().chain(files.keys());
    let visible_paths = visible_mounts.iter().map(|mount| &mount.path);
    let planned_paths = created_paths.chain(visible_paths).map(PathBuf::as_path);
    let names = directory.list_entry_names(MAX_NAMES)?;
    if BTreeSet::from_iter(names) != list_names_in(path, planned_paths) {
        return Ok(true);
    }
    for (link_path, target) in links {
        let link = namespace.open_entry(link_path)?;
        if link.as_ref().and_then(read_link_target).as_ref() != Some(target) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Fails if the plan has a mask that hides files. The caller calls this function for a container
/// that could unmount masks. A mask below `/sys/class` or `/sys/bus` is allowed: it hides only
/// links, and the container can see their targets below `/sys/devices` anyway.
pub(super) fn refuse_masks(plan: &InjectionPlan) -> Result<(), ApplyError> {
    for step in &plan.steps {
        if let Action::Mask { path, .. } = &step.action
            && !is_sysfs_link_directory(path)
        {
            return Err(ApplyError::RemovableMask { path: path.clone() }
                .with_owner_labels(&step.owner_labels));
        }
    }
    Ok(())
}

fn to_relative_path<'p>(directory: &Path, path: &'p Path) -> &'p Path {
    path.strip_prefix(directory).unwrap_or(path)
}
