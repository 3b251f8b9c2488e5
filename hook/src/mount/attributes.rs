//! Converts the attributes of a mount (read-only, no set-user-id programs, no devices, no
//! execution) to the flags of system calls.

pub use injection_plan::plan::MountAttributes as Attributes;
use nix::mount::MsFlags;
use nix::sys::statvfs::FsFlags;

/// Converts mount attributes to the `MOUNT_ATTR_*` bits of mount_setattr(2).
pub(super) fn to_attribute_bits(attributes: Attributes) -> u64 {
    let bits = [
        (attributes.read_only, libc::MOUNT_ATTR_RDONLY),
        (attributes.nosuid, libc::MOUNT_ATTR_NOSUID),
        (attributes.nodev, libc::MOUNT_ATTR_NODEV),
        (attributes.noexec, libc::MOUNT_ATTR_NOEXEC),
    ];
    bits.into_iter()
        .filter_map(|(is_set, bit)| is_set.then_some(bit))
        .fold(0, |mask, bit| mask | bit)
}

/// Converts mount attributes to the `MS_*` flags of mount(2).
pub(super) fn to_mount_flags(attributes: Attributes) -> MsFlags {
    let mut flags = MsFlags::empty();
    flags.set(MsFlags::MS_RDONLY, attributes.read_only);
    flags.set(MsFlags::MS_NOSUID, attributes.nosuid);
    flags.set(MsFlags::MS_NODEV, attributes.nodev);
    flags.set(MsFlags::MS_NOEXEC, attributes.noexec);
    flags
}

/// Returns the flags that a remount must repeat, because mount(2) clears each flag that is not
/// passed. Flags for access times are an exception: the kernel keeps them if none of them is passed
/// (Linux 3.17, and older kernels with the fix of CVE-2014-5207).
pub(super) fn to_remount_flags(current_flags: FsFlags) -> MsFlags {
    let flag_pairs = [
        (FsFlags::ST_RDONLY, MsFlags::MS_RDONLY),
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
    ];
    flag_pairs
        .into_iter()
        .filter_map(|(current_flag, mount_flag)| {
            current_flags.contains(current_flag).then_some(mount_flag)
        })
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
            assert_eq!(to_attribute_bits(attributes), bits, "{attributes:?}");
            assert_eq!(to_mount_flags(attributes), expected, "{attributes:?}");
        }
    }

    #[test]
    fn a_remount_keeps_what_the_source_had() {
        let current_flags = FsFlags::ST_NOSUID | FsFlags::ST_NOATIME;
        assert_eq!(to_remount_flags(current_flags), MsFlags::MS_NOSUID);
        assert_eq!(to_remount_flags(FsFlags::empty()), MsFlags::empty());
    }
}
