//! Prevents mounts in a container from appearing in other mount namespaces, such as that of the
//! host.
//!
//! If a mount has shared propagation, it has peers: copies in other mount namespaces. A new mount
//! inside it also appears in all its peers. One of them may be in the host's mount namespace
//! (mount_namespaces(7)).

use std::os::fd::AsFd;
use std::rc::Rc;

use nix::errno::Errno;

use super::{Error, Result, SyscallSupport};
use crate::container::{MountTarget, Procfs};
use crate::mountinfo::MountTable;
use crate::sys::statmount;

/// Finds out which mounts of the container's mount namespace have shared propagation.
///
/// Each mount is queried with statmount(2) (Linux 6.8). On older kernels, the list of all mounts is
/// read when it is first needed. This takes 2 ms for 1000 mounts. The list is read again only for a
/// mount that is not in it.
#[derive(Debug)]
pub(super) struct PropagationChecker {
    procfs: Rc<Procfs>,
    uses_statmount: bool,
    mount_table: Option<MountTable>,
    /// The ids of the mounts that this process has made. All of them are private.
    own_mount_ids: Vec<u64>,
    /// The ids of other mounts of the container that have no peers. The kernel does not reuse these
    /// ids: `ContainerRoot` has open handles on all mounts in which the hook creates mount points.
    private_mount_ids: Vec<u64>,
}

impl PropagationChecker {
    pub(super) fn new(procfs: Rc<Procfs>, syscall_support: SyscallSupport) -> Self {
        Self {
            procfs,
            uses_statmount: syscall_support.statmount,
            mount_table: None,
            own_mount_ids: Vec::new(),
            private_mount_ids: Vec::new(),
        }
    }

    /// Fails if a new mount on `target` would also appear in another mount namespace, such as that
    /// of the host.
    pub(super) fn check_target(&mut self, target: &MountTarget) -> Result<()> {
        if let Some(id) = target.mount_id()
            && (self.own_mount_ids.contains(&id) || self.private_mount_ids.contains(&id))
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
        self.private_mount_ids.extend(target.mount_id());
        Ok(())
    }

    /// Reads the list of mounts if it was not read yet. The caller does this before it makes a
    /// mount, so that [`Self::is_known_mount`] can distinguish existing mounts from the new one.
    pub(super) fn read_mounts(&mut self) -> Result<()> {
        self.get_or_read_mount_table().map(drop)
    }

    /// Reports whether the mount `id` already existed before the current operation: this process
    /// made it earlier, or it is in the list of [`Self::read_mounts`].
    pub(super) fn is_known_mount(&mut self, id: u64) -> Result<bool> {
        Ok(self.own_mount_ids.contains(&id) || self.get_or_read_mount_table()?.get(id).is_some())
    }

    pub(super) fn record_own_mount(&mut self, id: u64) {
        self.own_mount_ids.push(id);
    }

    /// Reports whether any mount is now mounted inside the mount `id`. Reads `/proc/self/mountinfo`
    /// again, because the list in memory may be outdated.
    pub(super) fn has_child_mounts(&self, id: u64) -> Result<bool> {
        Ok(self.read_mount_table()?.has_children(id))
    }

    /// Returns the id of the mount that contains `file`, as in the first field of
    /// `/proc/self/mountinfo`.
    pub(super) fn read_mount_id(&self, file: impl AsFd) -> Result<u64> {
        self.procfs.read_mount_id(file).map_err(Error::Container)
    }

    /// Reports whether the mount that contains `target` has shared propagation. Returns `None` if
    /// this mount is not in the mount namespace of this process.
    fn is_shared(&mut self, target: &MountTarget) -> Result<Option<bool>> {
        if self.uses_statmount {
            match query_is_shared(target) {
                Ok(Some(is_shared)) => return Ok(Some(is_shared)),
                Err(Errno::ENOENT) => return Ok(None),
                // After any other error, the list of mounts is used from now on.
                Ok(None) | Err(_) => self.uses_statmount = false,
            }
        }
        let id = self.read_mount_id(target)?;
        if self.own_mount_ids.contains(&id) {
            return Ok(Some(false));
        }
        if self.get_or_read_mount_table()?.get(id).is_none() {
            self.mount_table = Some(self.read_mount_table()?);
        }
        Ok(self
            .get_or_read_mount_table()?
            .get(id)
            .map(|mount| mount.is_shared))
    }

    fn get_or_read_mount_table(&mut self) -> Result<&MountTable> {
        match self.mount_table {
            Some(ref mount_table) => Ok(mount_table),
            None => {
                let mount_table = self.read_mount_table()?;
                Ok(self.mount_table.insert(mount_table))
            }
        }
    }

    fn read_mount_table(&self) -> Result<MountTable> {
        let text = self.procfs.read_mountinfo().map_err(Error::Container)?;
        MountTable::parse(&text).map_err(Error::MountInfo)
    }
}

fn query_is_shared(target: &MountTarget) -> nix::Result<Option<bool>> {
    let Some(id) = statmount::query_mount_id(target, statmount::STATX_MNT_ID_UNIQUE)? else {
        return Ok(None);
    };
    Ok(Some(
        statmount::query_mount(id)?.propagation & libc::MS_SHARED != 0,
    ))
}
