//! Parses `/proc/PID/mountinfo` (proc_pid_mountinfo(5)).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// A mount in the mount namespace of a process.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Mounted {
    /// The directory of the file system that is mounted, relative to its root.
    pub root: PathBuf,
    /// The mount point.
    pub mount_point: PathBuf,
    /// The options of this mount, such as `ro` or `nosuid`.
    pub options: Vec<String>,
    /// The optional fields, such as `shared:1`. A private mount has none.
    pub propagation: Vec<String>,
    /// The type of the file system, such as `ext4`.
    pub fs_type: String,
}

impl Mounted {
    /// Returns whether the mount has an option, such as `ro`.
    pub fn has_option(&self, option: &str) -> bool {
        self.options.iter().any(|one| one == option)
    }
}

/// Returns the mounts of this process in the order in which they were made.
pub fn of_self() -> Result<Vec<Mounted>> {
    let text =
        fs::read_to_string("/proc/self/mountinfo").context("cannot read /proc/self/mountinfo")?;
    text.lines()
        .map(|line| parse(line).with_context(|| format!("not a mountinfo line: {line}")))
        .collect()
}

/// Returns the mount that is visible at `path`: the last one that was made at exactly this path.
pub fn find_mount<'a>(mounts: &'a [Mounted], path: &Path) -> Option<&'a Mounted> {
    mounts.iter().rfind(|mount| mount.mount_point == path)
}

fn parse(line: &str) -> Option<Mounted> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut fields = mount.split(' ').skip(3);
    Some(Mounted {
        root: unescape(fields.next()?),
        mount_point: unescape(fields.next()?),
        options: fields.next()?.split(',').map(str::to_string).collect(),
        propagation: fields.map(str::to_string).collect(),
        fs_type: file_system.split(' ').next()?.to_string(),
    })
}

/// Decodes the octal escapes that the kernel writes for white space and `\`.
fn unescape(field: &str) -> PathBuf {
    let mut text = field.to_string();
    for (escape, plain) in [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ] {
        text = text.replace(escape, plain);
    }
    PathBuf::from(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_taken_apart() {
        let line =
            "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue";
        let expected = Mounted {
            root: "/mnt1".into(),
            mount_point: "/mnt 2".into(),
            options: vec!["rw".into(), "noatime".into()],
            propagation: vec!["master:1".into()],
            fs_type: "ext3".into(),
        };
        assert_eq!(parse(line), Some(expected));
        assert_eq!(parse("36 35 98:0 /mnt1 /mnt2 rw"), None);
    }
}
