//! Checks that no user other than root can change a file or directory.

use nix::sys::stat::FileStat;
use nix::unistd::geteuid;

const GROUP_WRITE: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// Returns the reason why a user other than root can add or replace files in a directory.
/// Returns `None` if no other user can.
///
/// A group may write to an engine's directory, because an administrator may have set that up.
/// With `private` a group may not: root runs programs from such a directory.
pub(super) fn find_problem(stat: &FileStat, private: bool) -> Option<String> {
    if !is_trusted_owner(stat) {
        return Some(format!("it belongs to user {}", stat.st_uid));
    }
    if stat.st_mode & OTHERS_WRITE != 0 {
        return Some("every user can write to it".into());
    }
    let by_group = stat.st_mode & GROUP_WRITE != 0 && stat.st_gid != 0;
    (private && by_group && stat.st_gid != nix::unistd::getegid().as_raw())
        .then(|| format!("group {} can write to it", stat.st_gid))
}

/// Returns whether a file or link belongs to root or to the user of this process. An
/// installation runs as root; tests run as another user.
pub(super) fn is_trusted_owner(stat: &FileStat) -> bool {
    stat.st_uid == 0 || stat.st_uid == geteuid().as_raw()
}
