//! Converts the restrictions of a mount (read-only, no set-user-id programs, no devices, no
//! execution) to the flags of system calls.

pub use injection_plan::plan::MountAttributes as Attributes;
use nix::mount::MsFlags;
use nix::sys::statvfs::FsFlags;

/// Converts the restrictions to `MOUNT_ATTR_*` bits for mount_setattr(2).
pub(super) fn mount_attr(attributes: Attributes) -> u64 {
    let bits = [
        (attributes.read_only, libc::MOUNT_ATTR_RDONLY),
        (attributes.nosuid, libc::MOUNT_ATTR_NOSUID),
        (attributes.nodev, libc::MOUNT_ATTR_NODEV),
        (attributes.noexec, libc::MOUNT_ATTR_NOEXEC),
    ];
    bits.into_iter()
        .filter_map(|(wanted, bit)| wanted.then_some(bit))
        .fold(0, |all, bit| all | bit)
}

/// Converts the restrictions to flags for mount(2).
pub(super) fn flags(attributes: Attributes) -> MsFlags {
    let mut flags = MsFlags::empty();
    flags.set(MsFlags::MS_RDONLY, attributes.read_only);
    flags.set(MsFlags::MS_NOSUID, attributes.nosuid);
    flags.set(MsFlags::MS_NODEV, attributes.nodev);
    flags.set(MsFlags::MS_NOEXEC, attributes.noexec);
    flags
}

/// Returns the flags that a remount must repeat so that the mount keeps its restrictions.
/// mount(2) replaces all flags, except that it keeps those for access times if none of them is
/// given (Linux 3.17, and older kernels with the fix of CVE-2014-5207).
pub(super) fn remount_flags(now: FsFlags) -> MsFlags {
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
        for (attributes, bits, expected) in [
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
            assert_eq!(mount_attr(attributes), bits, "{attributes:?}");
            assert_eq!(flags(attributes), expected, "{attributes:?}");
        }
    }

    #[test]
    fn a_remount_keeps_what_the_source_had() {
        let now = FsFlags::ST_NOSUID | FsFlags::ST_NOATIME;
        assert_eq!(remount_flags(now), MsFlags::MS_NOSUID);
        assert_eq!(remount_flags(FsFlags::empty()), MsFlags::empty());
    }
}
