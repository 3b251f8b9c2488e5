//! Who else could change a directory between two steps.

use nix::sys::stat::FileStat;
use nix::unistd::geteuid;

const GROUP_WRITE: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// Why others than root can put files of theirs into a directory, or replace
/// those in it; `None`: they cannot.
///
/// A group may write to an engine's directory if the administrator set that
/// up; of the directories whose programs root runs (`private`) it may not.
pub(super) fn problem(stat: &FileStat, private: bool) -> Option<String> {
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

/// Whether a file or link is root's; or of whoever runs this program, which is
/// root on every host that is installed to.
pub(super) fn is_trusted_owner(stat: &FileStat) -> bool {
    stat.st_uid == 0 || stat.st_uid == geteuid().as_raw()
}
