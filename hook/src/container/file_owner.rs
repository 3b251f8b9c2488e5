//! Creates files that belong to the container's root user.
//!
//! In a container with its own user namespace, the host's root user is unknown. A file that this
//! user creates there belongs to the overflow user, or the creation fails with `EOVERFLOW`. The
//! owner of a new file is determined only by the file system ids (setfsuid(2)) of the process. So
//! this process changes only these ids, and does not enter the user namespace.

use std::collections::HashSet;

use caps::{CapSet, Capability};
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};

use super::{Error, IdMap, IdMapError, ReaderNamespace, Result};

/// The owner of new files in a container: the user id and the group id on the host that belong to
/// the container's root user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOwner {
    uid: u32,
    gid: u32,
}

impl FileOwner {
    /// The root user of the user namespace in which the hook runs. It owns new files in a container
    /// without its own user namespace, for example under a rootless engine, whose namespace the
    /// hook shares.
    pub const ROOT: Self = Self { uid: 0, gid: 0 };

    /// Returns the ids to which a container's id maps map its root user. Fails if a map has no
    /// entry for the id 0. The error contains the name of the map: `uid_map` or `gid_map`.
    pub fn from_maps(
        uid_map: &IdMap,
        gid_map: &IdMap,
        reader: ReaderNamespace,
    ) -> std::result::Result<Self, (&'static str, IdMapError)> {
        Ok(Self {
            uid: uid_map
                .find_root_id(reader)
                .map_err(|error| ("uid_map", error))?,
            gid: gid_map
                .find_root_id(reader)
                .map_err(|error| ("gid_map", error))?,
        })
    }

    pub fn uid(self) -> u32 {
        self.uid
    }

    pub fn gid(self) -> u32 {
        self.gid
    }

    /// Sets the file system ids of this thread, so that new files belong to this owner. Dropping
    /// the returned guard restores the previous ids. Returns `None` for [`Self::ROOT`], which needs
    /// no change.
    pub(super) fn assume_for_new_files(self) -> Result<Option<FileOwnerGuard>> {
        if self == Self::ROOT {
            return Ok(None);
        }
        let to_error = |reason: String| Error::FileOwnerNotSet {
            uid: self.uid,
            gid: self.gid,
            reason,
        };
        let previous_capabilities =
            caps::read(None, CapSet::Effective).map_err(|error| to_error(error.to_string()))?;
        // If one of the following calls fails, the guard is dropped and restores the ids.
        let guard = FileOwnerGuard {
            previous_gid: setfsgid(Gid::from_raw(self.gid)),
            previous_uid: setfsuid(Uid::from_raw(self.uid)),
            previous_capabilities,
        };
        // setfsuid(2) and setfsgid(2) report no errors. A second call with the invalid id -1
        // changes nothing, but returns the current id. So it shows whether the first call had an
        // effect.
        let current_ids = (
            setfsuid(Uid::from_raw(u32::MAX)).as_raw(),
            setfsgid(Gid::from_raw(u32::MAX)).as_raw(),
        );
        if current_ids != (self.uid, self.gid) {
            return Err(to_error(
                "setfsuid or setfsgid had no effect; this needs CAP_SETUID and CAP_SETGID".into(),
            ));
        }
        // When the file system uid changes from 0, the kernel removes capabilities such as
        // CAP_DAC_OVERRIDE from the effective set (capabilities(7)). They are restored here,
        // because the container's root user may not be allowed to write to a directory.
        caps::set(None, CapSet::Effective, &guard.previous_capabilities)
            .map_err(|error| to_error(error.to_string()))?;
        Ok(Some(guard))
    }
}

/// A guard that restores the previous file system ids of this thread when it is dropped.
#[derive(Debug)]
pub(super) struct FileOwnerGuard {
    previous_uid: Uid,
    previous_gid: Gid,
    previous_capabilities: HashSet<Capability>,
}

impl Drop for FileOwnerGuard {
    fn drop(&mut self) {
        setfsuid(self.previous_uid);
        setfsgid(self.previous_gid);
        // When the file system uid changes back to 0, the kernel may add capabilities to the
        // effective set that were not in it before. So the set is restored. A failure is ignored,
        // because `drop` cannot report it.
        let _ = caps::set(None, CapSet::Effective, &self.previous_capabilities);
    }
}
