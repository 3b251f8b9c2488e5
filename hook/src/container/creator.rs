//! Creates files as the container's root user.
//!
//! In a container with a user namespace, a file that the host's root creates belongs to the
//! overflow user, or cannot be created at all (`EOVERFLOW`). The owner of a new file is
//! determined by the file system ids of setfsuid(2) alone. The process therefore changes only
//! these, keeps its other ids, and joins no user namespace.

use std::collections::HashSet;

use caps::{CapSet, Capability};
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};

use super::{Error, IdMap, IdMapError, MapReader, Result};

/// The user and group ids of the container's root, as seen from the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOwner {
    uid: u32,
    gid: u32,
}

impl FileOwner {
    /// Root of the user namespace of the hook itself. It is the owner for a container without
    /// a user namespace of its own, or in that of a rootless engine.
    pub const ROOT: Self = Self { uid: 0, gid: 0 };

    /// Returns the owner of new files in a container with these id maps. An error comes with
    /// the name of the map's file in `/proc/PID`.
    pub fn from_maps(
        uids: &IdMap,
        gids: &IdMap,
        reader: MapReader,
    ) -> std::result::Result<Self, (&'static str, IdMapError)> {
        Ok(Self {
            uid: uids.root(reader).map_err(|error| ("uid_map", error))?,
            gid: gids.root(reader).map_err(|error| ("gid_map", error))?,
        })
    }

    /// Returns the user id on the host.
    pub fn uid(self) -> u32 {
        self.uid
    }

    /// Returns the group id on the host.
    pub fn gid(self) -> u32 {
        self.gid
    }

    /// Makes this thread create files as this owner until the returned guard is dropped.
    /// Returns `None` if the owner is the root of this process, which needs no change.
    pub(super) fn assume(self) -> Result<Option<FileOwnerGuard>> {
        if self == Self::ROOT {
            return Ok(None);
        }
        let failed = |reason: String| Error::Creator {
            uid: self.uid,
            gid: self.gid,
            reason,
        };
        let effective =
            caps::read(None, CapSet::Effective).map_err(|error| failed(error.to_string()))?;
        // From here on, dropping `creator` restores the ids.
        let creator = FileOwnerGuard {
            gid: setfsgid(Gid::from_raw(self.gid)),
            uid: setfsuid(Uid::from_raw(self.uid)),
            effective,
        };
        // setfsuid(2) and setfsgid(2) report no error. A call with an invalid id changes
        // nothing and returns the current one, so it shows whether the change had an effect.
        let now = (
            setfsuid(Uid::from_raw(u32::MAX)).as_raw(),
            setfsgid(Gid::from_raw(u32::MAX)).as_raw(),
        );
        if now != (self.uid, self.gid) {
            return Err(failed(
                "setfsuid or setfsgid had no effect; this needs CAP_SETUID and CAP_SETGID".into(),
            ));
        }
        // The change from uid 0 removed the capabilities for files from the effective set.
        // They are still needed for directories that the container's root cannot write to.
        caps::set(None, CapSet::Effective, &creator.effective)
            .map_err(|error| failed(error.to_string()))?;
        Ok(Some(creator))
    }
}

/// A guard that restores the thread's ids as they were before [`FileOwner::assume`].
#[derive(Debug)]
pub(super) struct FileOwnerGuard {
    uid: Uid,
    gid: Gid,
    effective: HashSet<Capability>,
}

impl Drop for FileOwnerGuard {
    fn drop(&mut self) {
        setfsuid(self.uid);
        setfsgid(self.gid);
        // The return to uid 0 may have raised capabilities that were not effective before. A
        // failure is not expected, and cannot be reported here.
        let _ = caps::set(None, CapSet::Effective, &self.effective);
    }
}
