//! Checks that no user other than root can change a file or directory.

use nix::sys::stat::FileStat;
use nix::unistd::geteuid;

const S_IWGRP: u32 = 0o020;
const S_IWOTH: u32 = 0o002;

/// Describes which users other than root can add or replace files in a directory. Returns `None` if
/// only root can.
///
/// A group may have write access to an engine's directory, because an administrator may have set
/// that up. If `is_private` is set, a group may not have write access, because root runs programs
/// from the directory.
pub(super) fn find_untrusted_writer(stat: &FileStat, is_private: bool) -> Option<String> {
    if !is_trusted_owner(stat) {
        return Some(format!("it belongs to user {}", stat.st_uid));
    }
    if stat.st_mode & S_IWOTH != 0 {
        return Some("every user can write to it".into());
    }
    let can_group_write = stat.st_mode & S_IWGRP != 0 && stat.st_gid != 0;
    (is_private && can_group_write && stat.st_gid != nix::unistd::getegid().as_raw())
        .then(|| format!("group {} can write to it", stat.st_gid))
}

/// Returns whether a file or link belongs to root or to the user of this process. That user is not
/// root only in tests, because an installation runs as root.
pub(super) fn is_trusted_owner(stat: &FileStat) -> bool {
    stat.st_uid == 0 || stat.st_uid == geteuid().as_raw()
}
