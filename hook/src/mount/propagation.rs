//! Keeping mounts from spreading to other namespaces.
//!
//! What is attached in a mount with shared propagation appears in all its
//! peers at once, and one of them may be the host's (mount_namespaces(7)).

use std::path::PathBuf;
use std::rc::Rc;

use super::mountinfo::MountTable;
use super::{Error, Result};
use crate::container::{Directory, Procfs, Target};

/// What is known of the mounts of the container's namespace. The kernel's list
/// is read when it is first needed, and again only for mounts that are newer.
#[derive(Debug)]
pub(super) struct Propagation {
    proc: Rc<Procfs>,
    table: Option<MountTable>,
    /// Mounts made by us since the list was read: all private.
    ours: Vec<u64>,
    /// The directory whose mount was checked last: most targets are made in
    /// the same directory as the one before.
    checked: Option<Directory>,
}

impl Propagation {
    pub(super) fn new(proc: Rc<Procfs>) -> Self {
        Self {
            proc,
            table: None,
            ours: Vec::new(),
            checked: None,
        }
    }

    /// Checks that what is mounted on `target` stays in this namespace.
    pub(super) fn check(&mut self, target: &Target) -> Result<()> {
        if !target.created() {
            // It may be the root of another mount than its directory's.
            let id = self.mount_id(target)?;
            return self.check_mount(id, || target.path());
        }
        let directory = target.directory();
        if self
            .checked
            .as_ref()
            .is_some_and(|last| last.same_handle(directory))
        {
            return Ok(());
        }
        let id = self.mount_id(directory)?;
        self.check_mount(id, || target.path())?;
        self.checked = Some(directory.clone());
        Ok(())
    }

    /// Notes that the private mount `id` was made.
    pub(super) fn add_ours(&mut self, id: u64) {
        self.ours.push(id);
    }

    /// Whether the mount `id` was there before, or was made by us.
    pub(super) fn knows(&mut self, id: u64) -> Result<bool> {
        Ok(self.ours.contains(&id) || self.table()?.get(id).is_some())
    }

    /// Whether something is mounted in the mount `id` now.
    pub(super) fn has_children(&self, id: u64) -> Result<bool> {
        Ok(self.read()?.has_children(id))
    }

    pub(super) fn mount_id(&self, file: impl std::os::fd::AsFd) -> Result<u64> {
        self.proc.mount_id(file).map_err(Error::Container)
    }

    fn check_mount(&mut self, id: u64, path: impl Fn() -> PathBuf) -> Result<()> {
        if self.ours.contains(&id) {
            return Ok(());
        }
        if self.table()?.get(id).is_none() {
            self.table = Some(self.read()?);
        }
        match self.table()?.get(id) {
            Some(mount) if mount.shared => Err(Error::Shared { path: path() }),
            Some(_) => Ok(()),
            None => Err(Error::NotAttached { path: path() }),
        }
    }

    fn table(&mut self) -> Result<&MountTable> {
        match self.table {
            Some(ref table) => Ok(table),
            None => {
                let table = self.read()?;
                Ok(self.table.insert(table))
            }
        }
    }

    fn read(&self) -> Result<MountTable> {
        let text = self.proc.mountinfo().map_err(Error::Container)?;
        Ok(MountTable::parse(&text)?)
    }
}
