//! Builds the input of a device program, which is `struct bpf_cgroup_dev_ctx`
//! (`include/uapi/linux/bpf.h`, Linux 4.15).

use std::iter;

use crate::cgroup::rule::{Access, DeviceKind, DeviceRule};

/// The size of `struct bpf_cgroup_dev_ctx` in bytes. The structure consists of three 32-bit
/// numbers.
pub(super) const CONTEXT_LEN: usize = 12;
/// The offset in bytes of the field `access_type`. Its lower 16 bits contain the device kind, and
/// its upper 16 bits the access.
pub(super) const ACCESS_TYPE_OFFSET: i16 = 0;
pub(super) const MAJOR_OFFSET: i16 = 4;
pub(super) const MINOR_OFFSET: i16 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AccessRequest {
    pub(super) kind: DeviceKind,
    /// The requested access, as the bits of [`Access`]. They are 0 if a file is opened only for
    /// ioctl(2) (access mode 3 of open(2)).
    pub(super) access: u8,
    pub(super) major: u32,
    pub(super) minor: u32,
}

impl AccessRequest {
    /// Returns all requests that `rule` allows. They include a request with no access bits, which
    /// the kernel makes when a file is opened only for ioctl(2) (access mode 3 of open(2)).
    pub(super) fn expand_rule(rule: DeviceRule) -> impl Iterator<Item = Self> {
        let accesses = rule.access().subsets().map(Access::bits);
        iter::once(0).chain(accesses).map(move |access| Self {
            kind: rule.kind(),
            access,
            major: rule.major(),
            minor: rule.minor(),
        })
    }

    pub(super) fn to_context(self) -> [u8; CONTEXT_LEN] {
        let access_type = u32::from(self.access) << 16 | to_kernel_kind(self.kind);
        let mut context = [0; CONTEXT_LEN];
        let words = [access_type, self.major, self.minor];
        for (bytes, word) in context.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        context
    }
}

/// Returns the number of a device kind in the kernel: `BPF_DEVCG_DEV_BLOCK` or
/// `BPF_DEVCG_DEV_CHAR`.
pub(super) fn to_kernel_kind(kind: DeviceKind) -> u32 {
    match kind {
        DeviceKind::Block => 1,
        DeviceKind::Character => 2,
    }
}

/// Returns the access bits (`BPF_DEVCG_ACC_…`) of `access`, in the type of a constant of an
/// instruction.
pub(super) fn access_bits(access: Access) -> i32 {
    access.bits().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_holds_access_above_kind() {
        let request = AccessRequest {
            kind: DeviceKind::Character,
            access: Access::READ.bits() | Access::WRITE.bits(),
            major: 10,
            minor: 0x183,
        };
        let words: Vec<u32> = request
            .to_context()
            .chunks_exact(4)
            .map(|bytes| u32::from_ne_bytes(bytes.try_into().unwrap()))
            .collect();
        assert_eq!(words, [0x0006_0002, 10, 0x183]);
    }
}
