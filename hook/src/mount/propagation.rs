//! Keeping mounts from spreading to other namespaces.
//!
//! What is attached in a mount with shared propagation appears in all its
//! peers at once, and one of them may be the host's (mount_namespaces(7)).

use std::os::fd::AsFd;
use std::rc::Rc;

use nix::errno::Errno;

use super::{Error, KernelCalls, Result};
use crate::container::{Procfs, Target};
use crate::mountinfo::MountTable;
use crate::sys::statmount;

/// What is known of the mounts of the container's namespace.
///
/// With `statmount` each mount is queried. On older kernels the list of
/// all mounts is read when it is first needed (2 ms for 1000 mounts), and
/// again only for mounts that are newer.
#[derive(Debug)]
pub(super) struct Propagation {
    proc: Rc<Procfs>,
    statmount: bool,
    table: Option<MountTable>,
    /// Mounts made by us since the list was read: all private.
    ours: Vec<u64>,
    /// Older mounts that were found to have no peers. Those that targets are
    /// made on are held by the container's root.
    unshared: Vec<u64>,
}

impl Propagation {
    pub(super) fn new(proc: Rc<Procfs>, calls: KernelCalls) -> Self {
        Self {
            proc,
            statmount: calls.statmount,
            table: None,
            ours: Vec::new(),
            unshared: Vec::new(),
        }
    }

    /// Checks that what is mounted on `target` stays in this namespace.
    pub(super) fn check(&mut self, target: &Target) -> Result<()> {
        if let Some(id) = target.mount()
            && (self.ours.contains(&id) || self.unshared.contains(&id))
        {
            return Ok(());
        }
        match self.is_shared(target)? {
            Some(false) => {}
            Some(true) => {
                return Err(Error::Shared {
                    path: target.path(),
                });
            }
            None => {
                return Err(Error::NotAttached {
                    path: target.path(),
                });
            }
        }
        self.unshared.extend(target.mount());
        Ok(())
    }

    /// Reads the list of mounts, if it was not read yet, so that mounts made
    /// from now on can be distinguished from older ones.
    pub(super) fn remember(&mut self) -> Result<()> {
        self.table().map(drop)
    }

    /// Whether the mount `id` is older than [`Self::remember`], or ours.
    pub(super) fn knows(&mut self, id: u64) -> Result<bool> {
        Ok(self.ours.contains(&id) || self.table()?.get(id).is_some())
    }

    /// Notes that the private mount `id` was made.
    pub(super) fn add_ours(&mut self, id: u64) {
        self.ours.push(id);
    }

    /// Whether something is mounted in the mount `id` now.
    pub(super) fn has_children(&self, id: u64) -> Result<bool> {
        Ok(self.read()?.has_children(id))
    }

    /// The id of the mount that `file` is in, as in the list.
    pub(super) fn mount_id(&self, file: impl AsFd) -> Result<u64> {
        self.proc.mount_id(file).map_err(Error::Container)
    }

    /// Whether the mount that `target` is in has peers. None if it is not
    /// in this namespace.
    fn is_shared(&mut self, target: &Target) -> Result<Option<bool>> {
        if self.statmount {
            match ask(target) {
                Ok(Some(shared)) => return Ok(Some(shared)),
                Err(Errno::ENOENT) => return Ok(None),
                // The list is there for any other trouble.
                Ok(None) | Err(_) => self.statmount = false,
            }
        }
        let id = self.mount_id(target)?;
        if self.ours.contains(&id) {
            return Ok(Some(false));
        }
        if self.table()?.get(id).is_none() {
            self.table = Some(self.read()?);
        }
        Ok(self.table()?.get(id).map(|mount| mount.shared))
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
        MountTable::parse(&text).map_err(Error::MountInfo)
    }
}

fn ask(target: &Target) -> nix::Result<Option<bool>> {
    let Some(id) = statmount::mount_id(target, statmount::UNIQUE_MOUNT_ID)? else {
        return Ok(None);
    };
    Ok(Some(
        statmount::basic(id)?.propagation & libc::MS_SHARED != 0,
    ))
}
