//! Checks whether a file belongs to root or to the user of this process. The process may run in a
//! user namespace.

use std::fs;

use nix::unistd::geteuid;

/// The default overflow uid. In a user namespace, the kernel shows this uid for all users that are
/// not mapped there (user_namespaces(7)). An administrator can change it in
/// `/proc/sys/kernel/overflowuid`.
const DEFAULT_OVERFLOW_UID: u32 = 65534;

/// Returns whether `uid` is root or the user of this process. In a user namespace, the overflow uid
/// is accepted as well: if root is not mapped there, the files of the host's root user have this
/// uid.
pub fn is_root_or_this_user(uid: u32) -> bool {
    uid == 0 || uid == geteuid().as_raw() || (is_in_user_namespace() && uid == read_overflow_uid())
}

fn is_in_user_namespace() -> bool {
    let identity_mapping = ["0", "0", "4294967295"];
    !read_proc_file("/proc/self/uid_map")
        .split_whitespace()
        .eq(identity_mapping)
}

fn read_overflow_uid() -> u32 {
    let text = read_proc_file("/proc/sys/kernel/overflowuid");
    text.trim().parse().unwrap_or(DEFAULT_OVERFLOW_UID)
}

#[expect(clippy::disallowed_methods, reason = "a file of the kernel")]
fn read_proc_file(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
