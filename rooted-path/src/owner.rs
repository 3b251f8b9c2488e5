//! Checks whether the owner of a file is root or the user of this process.

use std::fs;

use nix::unistd::geteuid;

/// The default uid that a user namespace shows for users that are not mapped in it. The kernel
/// can be configured to show another one (`/proc/sys/kernel/overflowuid`).
const OVERFLOW_UID: u32 = 65534;

/// Returns whether `uid` is root or the user of this process. In a user namespace, files of the
/// host's root have the overflow uid if the host's root is not mapped.
pub fn is_root_or_this_user(uid: u32) -> bool {
    uid == 0 || uid == geteuid().as_raw() || (is_in_user_namespace() && uid == overflow_uid())
}

fn is_in_user_namespace() -> bool {
    let identity_mapping = ["0", "0", "4294967295"];
    !read("/proc/self/uid_map")
        .split_whitespace()
        .eq(identity_mapping)
}

fn overflow_uid() -> u32 {
    let text = read("/proc/sys/kernel/overflowuid");
    text.trim().parse().unwrap_or(OVERFLOW_UID)
}

#[expect(clippy::disallowed_methods, reason = "a file of the kernel")]
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
