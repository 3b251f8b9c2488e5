//! What may be done with what is mounted.

use nix::mount::MsFlags;
use nix::sys::statvfs::FsFlags;

/// Restrictions that a mount adds to those its source has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Nothing can be written.
    pub read_only: bool,
    /// Set-user-id and set-group-id bits have no effect.
    pub nosuid: bool,
    /// Device nodes cannot be opened.
    pub nodev: bool,
    /// Nothing can be executed.
    pub noexec: bool,
}

impl Attributes {
    /// For libraries, programs and other files of the host.
    pub const FILE: Self = Self {
        read_only: true,
        nosuid: true,
        nodev: true,
        noexec: false,
    };

    /// For device nodes. Read-only concerns the node and not the device: it can
    /// be written to, but its mode and owner, which are the host's, stay.
    pub const DEVICE: Self = Self {
        read_only: true,
        nosuid: true,
        nodev: false,
        noexec: true,
    };

    /// Whether nothing is restricted.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// As `MOUNT_ATTR_*` bits.
    pub(super) fn mount_attr(self) -> u64 {
        let bits = [
            (self.read_only, libc::MOUNT_ATTR_RDONLY),
            (self.nosuid, libc::MOUNT_ATTR_NOSUID),
            (self.nodev, libc::MOUNT_ATTR_NODEV),
            (self.noexec, libc::MOUNT_ATTR_NOEXEC),
        ];
        bits.into_iter()
            .filter_map(|(wanted, bit)| wanted.then_some(bit))
            .fold(0, |all, bit| all | bit)
    }

    /// As flags for mount(2).
    pub(super) fn flags(self) -> MsFlags {
        let mut flags = MsFlags::empty();
        flags.set(MsFlags::MS_RDONLY, self.read_only);
        flags.set(MsFlags::MS_NOSUID, self.nosuid);
        flags.set(MsFlags::MS_NODEV, self.nodev);
        flags.set(MsFlags::MS_NOEXEC, self.noexec);
        flags
    }
}

/// The flags that a remount must repeat for a mount to keep them: mount(2)
/// replaces all of them, but for those of access times, which it keeps where none
/// is given (Linux 3.17, and older ones with the fix of CVE-2014-5207).
pub(super) fn kept(now: FsFlags) -> MsFlags {
    let pairs = [
        (FsFlags::ST_RDONLY, MsFlags::MS_RDONLY),
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
    ];
    pairs
        .into_iter()
        .filter_map(|(have, keep)| now.contains(have).then_some(keep))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_restrict_the_same() {
        for (attributes, bits, flags) in [
            (Attributes::default(), 0, MsFlags::empty()),
            (
                Attributes::FILE,
                libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV,
                MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
            ),
            (
                Attributes::DEVICE,
                libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC,
                MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC,
            ),
        ] {
            assert_eq!(attributes.mount_attr(), bits, "{attributes:?}");
            assert_eq!(attributes.flags(), flags, "{attributes:?}");
        }
    }

    #[test]
    fn a_remount_keeps_what_the_source_had() {
        let now = FsFlags::ST_NOSUID | FsFlags::ST_NOATIME;
        assert_eq!(kept(now), MsFlags::MS_NOSUID);
        assert_eq!(kept(FsFlags::empty()), MsFlags::empty());
    }
}
