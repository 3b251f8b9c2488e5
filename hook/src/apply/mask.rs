//! Masks: directories in which the container sees only selected contents.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use device_class::discover::has_only_links;
use injection_plan::plan::{Action, InjectionPlan};
use nix::sys::stat::Mode;

use super::ApplyError;
use super::tmpfs::{self, TmpfsDirectories};
use crate::container::{ContainerRoot, FileKind, Target, read_link_target};
use crate::mount::{self, Mounter, Source, TmpfsOptions};

/// A mask that will cover a directory of the container.
pub(crate) struct Mask<'p> {
    pub(crate) path: &'p Path,
    /// Whether the directory is created if the container does not have it.
    pub(super) is_created: bool,
    /// The files in the mask, with their contents.
    pub(super) files: &'p BTreeMap<PathBuf, String>,
    /// The links in the mask, with their targets.
    pub(super) links: &'p BTreeMap<PathBuf, PathBuf>,
    /// The files of the host that are visible in the mask, and their paths.
    pub(super) visible_files: Vec<(Source, &'p Path)>,
}

/// The size limit of the tmpfs in bytes. The tmpfs has the texts of created files; the contents of
/// mounted files are in their own file systems.
const SIZE: u64 = 1 << 20;

const DIRECTORY_MODE: Mode = Mode::from_bits_truncate(0o555);
const FILE_MODE: Mode = Mode::from_bits_truncate(0o444);

impl Mask<'_> {
    /// Covers the directory by the mask, if the container has the directory or it is to be
    /// created. Nothing is done if the mask is there already, because a hook may run twice.
    pub(super) fn attach(
        self,
        root: &ContainerRoot,
        mounter: &mut Mounter,
        label: Option<&str>,
    ) -> Result<(), ApplyError> {
        let target = if self.is_created {
            Some(root.mount_point(self.path, FileKind::Directory)?)
        } else {
            root.existing_mount_point(self.path, FileKind::Directory)?
        };
        let Some(target) = target else {
            return Ok(());
        };
        if self.is_complete(root, &target)? {
            return Ok(());
        }
        let options = TmpfsOptions {
            size: SIZE,
            mode: DIRECTORY_MODE,
            label,
        };
        let staged = mounter.tmpfs(target, &options)?;
        let mut directories = TmpfsDirectories::new(staged.directory());
        for (path, text) in self.files {
            let (directory, name) = directories.create_parent(relative_path(self.path, path))?;
            directory.write_new(name, text.as_bytes(), FILE_MODE)?;
        }
        for (path, target) in self.links {
            let (directory, name) = directories.create_parent(relative_path(self.path, path))?;
            directory.symlink(name, target)?;
        }
        let mut mounts = Vec::with_capacity(self.visible_files.len());
        for (source, path) in self.visible_files {
            let (directory, name) = directories.create_parent(relative_path(self.path, path))?;
            let target = directory.mount_point(name, source.kind())?;
            mounts.push((source, target));
        }
        tmpfs::attach(staged, mounts, mounter)
    }

    /// Returns whether a tmpfs with all contents of the mask is there already. The test for a
    /// tmpfs is necessary because the directory itself may show the same contents: in a
    /// container that shares the processes of the host, /proc is that of the host.
    fn is_complete(&self, root: &ContainerRoot, target: &Target) -> Result<bool, ApplyError> {
        if !target.is_tmpfs()? {
            return Ok(false);
        }
        for (source, path) in &self.visible_files {
            if !tmpfs::is_mounted_at(root, path, source)? {
                return Ok(false);
            }
        }
        for (path, text) in self.files {
            // The read limit is the length of the text, so a longer file is an error and
            // differs.
            let found = root.read_file(path, text.len()).unwrap_or_default();
            if found.as_deref() != Some(text.as_bytes()) {
                return Ok(false);
            }
        }
        for (path, target) in self.links {
            if find_link(root, path)?.as_ref() != Some(target) {
                return Ok(false);
            }
        }
        // A device that was unplugged or is in another socket must not stay in the list.
        Ok(!has_only_links(self.path) || self.list_names(root)? == self.planned_names())
    }

    /// Removes the mask of a container that runs if it lists other devices than this one. A mask
    /// that hides files of the host is never removed, because they would be visible until
    /// the new one is there.
    pub(crate) fn remove_outdated(&self, root: &ContainerRoot) -> Result<(), ApplyError> {
        if !has_only_links(self.path) {
            return Ok(());
        }
        let target = root.existing_mount_point(self.path, FileKind::Directory)?;
        if let Some(target) = target
            && target.is_tmpfs()?
            && !self.is_complete(root, &target)?
        {
            mount::unmount(&target.open_top()?, self.path, root.proc())?;
        }
        Ok(())
    }

    /// Returns the names in the directory of the container.
    fn list_names(&self, root: &ContainerRoot) -> Result<BTreeSet<OsString>, ApplyError> {
        const MAX_NAMES: usize = 4096;
        let Some(directory) = root.existing_directory(self.path)? else {
            return Ok(BTreeSet::new());
        };
        Ok(directory.list_names(MAX_NAMES)?.into_iter().collect())
    }

    /// Returns the names that the directory has with this mask.
    fn planned_names(&self) -> BTreeSet<OsString> {
        let shown = self.visible_files.iter().map(|(_, path)| *path);
        let created = self.files.keys().chain(self.links.keys());
        let paths = created.map(PathBuf::as_path).chain(shown);
        let names = paths.filter_map(|path| relative_path(self.path, path).iter().next());
        names.map(OsStr::to_owned).collect()
    }
}

/// Returns the text of the link at a path in the container.
fn find_link(root: &ContainerRoot, path: &Path) -> Result<Option<PathBuf>, ApplyError> {
    let Some((parent, name)) = root.existing_parent(path)? else {
        return Ok(None);
    };
    Ok(parent.open(name)?.as_ref().and_then(read_link_target))
}

/// Refuses a plan with a mask for a container that could remove the mask. A mask of links of the
/// kernel hides nothing that the container does not see elsewhere.
pub(super) fn refuse_masks(plan: &InjectionPlan) -> Result<(), ApplyError> {
    for step in &plan.steps {
        if let Action::Mask { path, .. } = &step.action
            && !has_only_links(path)
        {
            return Err(
                ApplyError::RemovableMask { path: path.clone() }.with_subject(&step.user_labels)
            );
        }
    }
    Ok(())
}

/// Returns the part of the path below the directory.
fn relative_path<'p>(directory: &Path, path: &'p Path) -> &'p Path {
    path.strip_prefix(directory).unwrap_or(path)
}
