//! Prevents that mounts spread to other mount namespaces.
//!
//! A mount that is made in a mount with shared propagation appears in all its peers at once,
//! and one of the peers may be in the host's mount namespace (mount_namespaces(7)).

use std::os::fd::AsFd;
use std::rc::Rc;

use nix::errno::Errno;

use super::{Error, KernelCalls, Result};
use crate::container::{Procfs, Target};
use crate::mountinfo::MountTable;
use crate::sys::statmount;

/// Knowledge about the propagation of mounts in the container's mount namespace.
///
/// With `statmount`, each mount is queried. On older kernels, the list of all mounts is read
/// when it is first needed, which takes 2 ms for 1000 mounts. It is read again only for newer
/// mounts.
#[derive(Debug)]
pub(super) struct Propagation {
    proc: Rc<Procfs>,
    statmount: bool,
    table: Option<MountTable>,
    /// The ids of mounts that this process made since the list was read. All of them are
    /// private.
    ours: Vec<u64>,
    /// The ids of older mounts that were found to have no peers. The container's root keeps
    /// the mounts on which targets are created, so that their ids are not reused.
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

    /// Checks that a mount on `target` stays in this mount namespace.
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

    /// Reads the list of mounts unless it was read already. Mounts made from now on can then
    /// be distinguished from older ones.
    pub(super) fn read_mounts(&mut self) -> Result<()> {
        self.table().map(drop)
    }

    /// Returns whether the mount `id` was made by this process, or existed at
    /// [`Self::read_mounts`].
    pub(super) fn is_known(&mut self, id: u64) -> Result<bool> {
        Ok(self.ours.contains(&id) || self.table()?.get(id).is_some())
    }

    /// Records that this process made the private mount `id`.
    pub(super) fn add_own_mount(&mut self, id: u64) {
        self.ours.push(id);
    }

    /// Returns whether something is mounted in the mount `id` now.
    pub(super) fn has_children(&self, id: u64) -> Result<bool> {
        Ok(self.read_table()?.has_children(id))
    }

    /// Returns the id of the mount that `file` is in, as in the list of mounts.
    pub(super) fn mount_id(&self, file: impl AsFd) -> Result<u64> {
        self.proc.mount_id(file).map_err(Error::Container)
    }

    /// Returns whether the mount that `target` is in has peers, or `None` if it is not in this
    /// mount namespace.
    fn is_shared(&mut self, target: &Target) -> Result<Option<bool>> {
        if self.statmount {
            match query_is_shared(target) {
                Ok(Some(shared)) => return Ok(Some(shared)),
                Err(Errno::ENOENT) => return Ok(None),
                // On any other error the list of mounts is used from now on.
                Ok(None) | Err(_) => self.statmount = false,
            }
        }
        let id = self.mount_id(target)?;
        if self.ours.contains(&id) {
            return Ok(Some(false));
        }
        if self.table()?.get(id).is_none() {
            self.table = Some(self.read_table()?);
        }
        Ok(self.table()?.get(id).map(|mount| mount.is_shared))
    }

    fn table(&mut self) -> Result<&MountTable> {
        match self.table {
            Some(ref table) => Ok(table),
            None => {
                let table = self.read_table()?;
                Ok(self.table.insert(table))
            }
        }
    }

    fn read_table(&self) -> Result<MountTable> {
        let text = self.proc.read_mountinfo().map_err(Error::Container)?;
        MountTable::parse(&text).map_err(Error::MountInfo)
    }
}

fn query_is_shared(target: &Target) -> nix::Result<Option<bool>> {
    let Some(id) = statmount::mount_id(target, statmount::UNIQUE_MOUNT_ID)? else {
        return Ok(None);
    };
    Ok(Some(
        statmount::query_mount(id)?.propagation & libc::MS_SHARED != 0,
    ))
}
