//! Creating files as the container's root.
//!
//! In a container with a user namespace a file made by the host's root belongs
//! to the overflow user, or cannot be created at all (`EOVERFLOW`). The file system ids of
//! setfsuid(2) alone determine a new file's owner: the process keeps its other
//! ids, and joins no user namespace.

use std::collections::HashSet;

use caps::{CapSet, Capability};
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};

use super::{Error, IdMap, IdMapError, Reader, Result};

/// The container's root user and group, as seen from the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    uid: u32,
    gid: u32,
}

impl Owner {
    /// Root of the user namespace that the hook itself is in: of a container
    /// without a user namespace, or of one that shares a rootless engine's.
    pub const ROOT: Self = Self { uid: 0, gid: 0 };

    /// The owner of what is created in a container with these maps.
    pub fn from_maps(
        uids: &IdMap,
        gids: &IdMap,
        reader: Reader,
    ) -> std::result::Result<Self, (&'static str, IdMapError)> {
        Ok(Self {
            uid: uids.root(reader).map_err(|error| ("uid_map", error))?,
            gid: gids.root(reader).map_err(|error| ("gid_map", error))?,
        })
    }

    /// The user id on the host.
    pub fn uid(self) -> u32 {
        self.uid
    }

    /// The group id on the host.
    pub fn gid(self) -> u32 {
        self.gid
    }

    /// Makes this thread create files as this owner until the guard is dropped.
    /// Nothing is needed for the process's own root.
    pub(super) fn assume(self) -> Result<Option<Creator>> {
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
        // From here on, dropping the guard restores the ids.
        let creator = Creator {
            gid: setfsgid(Gid::from_raw(self.gid)),
            uid: setfsuid(Uid::from_raw(self.uid)),
            effective,
        };
        // The calls report no error: a call with an invalid id returns the
        // current one.
        let now = (
            setfsuid(Uid::from_raw(u32::MAX)).as_raw(),
            setfsgid(Gid::from_raw(u32::MAX)).as_raw(),
        );
        if now != (self.uid, self.gid) {
            return Err(failed(
                "setfsuid or setfsgid had no effect; this needs CAP_SETUID and CAP_SETGID".into(),
            ));
        }
        // Leaving uid 0 removed the capabilities for files, which are still
        // needed for directories that the container's root may not write to.
        caps::set(None, CapSet::Effective, &creator.effective)
            .map_err(|error| failed(error.to_string()))?;
        Ok(Some(creator))
    }
}

/// Restores the thread's ids of before [`Owner::assume`].
#[derive(Debug)]
pub(super) struct Creator {
    uid: Uid,
    gid: Gid,
    effective: HashSet<Capability>,
}

impl Drop for Creator {
    fn drop(&mut self) {
        setfsuid(self.uid);
        setfsgid(self.gid);
        // Returning to uid 0 may have raised more capabilities than before. A
        // failure, which is not expected, is ignored.
        let _ = caps::set(None, CapSet::Effective, &self.effective);
    }
}
