//! The input of a device program: `struct bpf_cgroup_dev_ctx` (`include/uapi/linux/bpf.h`,
//! Linux 4.15).

use std::iter;

use crate::cgroup::rule::{Access, DeviceKind, DeviceRule};

/// The size of the context in bytes: three 32-bit numbers.
pub(super) const CONTEXT_LEN: usize = 12;
/// The offset of a word with the device kind in the lower half, and the access in the upper
/// half.
pub(super) const ACCESS_TYPE: i16 = 0;
pub(super) const MAJOR: i16 = 4;
pub(super) const MINOR: i16 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AccessRequest {
    pub(super) kind: DeviceKind,
    /// The bits of [`Access`]. The kernel may request no access.
    pub(super) access: u8,
    pub(super) major: u32,
    pub(super) minor: u32,
}

impl AccessRequest {
    /// Returns all requests that a rule allows, including one for no access. The kernel makes
    /// that request when a file is opened only to control its device (access mode 3 of
    /// open(2)).
    pub(super) fn list_allowed_by(rule: DeviceRule) -> impl Iterator<Item = Self> {
        let some = rule.access().subsets().map(Access::bits);
        iter::once(0).chain(some).map(move |access| Self {
            kind: rule.kind(),
            access,
            major: rule.major(),
            minor: rule.minor(),
        })
    }

    pub(super) fn context(&self) -> [u8; CONTEXT_LEN] {
        let access_type = u32::from(self.access) << 16 | kind_number(self.kind);
        let mut context = [0; CONTEXT_LEN];
        let words = [access_type, self.major, self.minor];
        for (bytes, word) in context.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        context
    }
}

/// Returns `BPF_DEVCG_DEV_BLOCK` or `BPF_DEVCG_DEV_CHAR`.
pub(super) fn kind_number(kind: DeviceKind) -> u32 {
    match kind {
        DeviceKind::Block => 1,
        DeviceKind::Character => 2,
    }
}

/// Returns the access bits that a program tests in a request.
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
            .context()
            .chunks_exact(4)
            .map(|bytes| u32::from_ne_bytes(bytes.try_into().unwrap()))
            .collect();
        assert_eq!(words, [0x0006_0002, 10, 0x183]);
    }
}
