//! Directories of which the container sees only what is named.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use injection_plan::plan::{Action, InjectionPlan};
use nix::sys::stat::Mode;

use super::{ApplyError, tmpfs};
use crate::container::{ContainerRoot, FileKind, Name, Target};
use crate::mount::{Mounter, Source, TmpfsOptions};

pub(crate) struct Mask<'p> {
    pub(crate) path: &'p Path,
    /// Whether it is made if the container has none.
    pub(super) make: bool,
    /// The files in it, with their contents.
    pub(super) files: &'p BTreeMap<PathBuf, String>,
    /// What of the host is seen in it, and where.
    pub(super) shown: Vec<(Source, &'p Path)>,
}

/// Room for the texts; what is mounted has its own pages.
const SIZE: u64 = 1 << 20;

const DIRECTORY_MODE: Mode = Mode::from_bits_truncate(0o555);
const FILE_MODE: Mode = Mode::from_bits_truncate(0o444);

impl Mask<'_> {
    /// Covers the directory, if the container has it or is to have it, and it is not covered
    /// yet: a hook may run twice.
    pub(super) fn attach(
        self,
        root: &ContainerRoot,
        mounter: &mut Mounter,
        label: Option<&str>,
    ) -> Result<(), ApplyError> {
        let target = match self.make {
            true => Some(root.mount_point(self.path, FileKind::Directory)?),
            false => root.existing_mount_point(self.path, FileKind::Directory)?,
        };
        let Some(target) = target else {
            return Ok(());
        };
        if self.is_there(root, &target)? {
            return Ok(());
        }
        let options = TmpfsOptions {
            size: SIZE,
            mode: DIRECTORY_MODE,
            label,
        };
        let staged = mounter.tmpfs(target, &options)?;
        for (path, text) in self.files {
            let (directory, name) = tmpfs::parent(staged.directory(), below(self.path, path))?;
            directory.write_new(Name::new(&name)?, text.as_bytes(), FILE_MODE)?;
        }
        let mut mounts = Vec::with_capacity(self.shown.len());
        for (source, path) in self.shown {
            let (directory, name) = tmpfs::parent(staged.directory(), below(self.path, path))?;
            let target = directory.mount_point(Name::new(&name)?, source.kind())?;
            mounts.push((source, target));
        }
        tmpfs::attach(staged, mounts, mounter)
    }

    /// Whether a tmpfs is there already, with all that it should have. (The
    /// directory itself may show the same things: of a container that shares the
    /// host's processes, /proc is the host's.)
    fn is_there(&self, root: &ContainerRoot, target: &Target) -> Result<bool, ApplyError> {
        if !target.is_tmpfs()? {
            return Ok(false);
        }
        for (source, path) in &self.shown {
            if !tmpfs::shows(root, path, source)? {
                return Ok(false);
            }
        }
        for (path, text) in self.files {
            // A longer file is another one.
            let found = root.read_file(path, text.len()).unwrap_or_default();
            if found.as_deref() != Some(text.as_bytes()) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Refuses a plan with a mask, for a container that could remove it.
pub(super) fn refuse(plan: &InjectionPlan) -> Result<(), ApplyError> {
    for step in &plan.steps {
        if let Action::Mask { path, .. } = &step.action {
            return Err(ApplyError::RemovableMask { path: path.clone() }.with_subject(&step.why));
        }
    }
    Ok(())
}

/// The path of something in the directory, from there.
fn below<'p>(directory: &Path, path: &'p Path) -> &'p Path {
    path.strip_prefix(directory).unwrap_or(path)
}
