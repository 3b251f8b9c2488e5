//! Parses `/proc/PID/mountinfo` (proc_pid_mountinfo(5)).

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use nix::libc::dev_t;
use nix::sys::stat::makedev;

/// The maximum size of `/proc/PID/mountinfo` in bytes. A mount namespace may have 100,000 mounts
/// (`fs.mount-max`), each with about 300 bytes.
pub(crate) const MAX_MOUNTINFO_BYTES: u64 = 32 * 1024 * 1024;

/// The fields of a line of mountinfo that this program uses. The paths are still encoded: the
/// kernel writes a space or a backslash as an octal code such as `\040`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MountLine<'a> {
    pub(crate) id: u64,
    pub(crate) parent_id: u64,
    /// The device number of the file system (`st_dev` of its files).
    pub(crate) device_number: dev_t,
    /// The directory of the file system that is visible at the mount point. It is not `/` for a
    /// bind mount of a subdirectory.
    pub(crate) root: &'a [u8],
    pub(crate) point: &'a [u8],
    /// True if the mount is in a peer group (`shared:N`). A new mount inside this mount then also
    /// appears in the other mounts of the group (mount_namespaces(7)).
    pub(crate) is_shared: bool,
    pub(crate) fs_type: &'a [u8],
    /// The options of the file system itself, such as `size=64k`. They apply to all its mounts.
    pub(crate) super_options: &'a [u8],
}

impl<'a> MountLine<'a> {
    /// Splits a mountinfo line into its fields: `ID PARENT DEV ROOT POINT OPTIONS [TAG[:VALUE]]...
    /// - TYPE SOURCE SUPER` (proc_pid_mountinfo(5)). Returns `None` if a field is missing.
    pub(crate) fn split(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let id = parse_number(fields.next()?)?;
        let parent_id = parse_number(fields.next()?)?;
        let mut device_numbers = fields.next()?.split(|byte| *byte == b':');
        let major = parse_number(device_numbers.next()?)?;
        let minor = parse_number(device_numbers.next()?)?;
        let (root, point) = (fields.next()?, fields.next()?);
        let mut is_shared = false;
        let mut tags = fields.by_ref().skip(1);
        loop {
            match tags.next()? {
                b"-" => break,
                tag => is_shared |= tag.starts_with(b"shared:"),
            }
        }
        Some(MountLine {
            id,
            parent_id,
            device_number: makedev(major, minor),
            root,
            point,
            is_shared,
            fs_type: fields.next()?,
            super_options: fields.nth(1)?,
        })
    }

    pub(crate) fn root_path(&self) -> PathBuf {
        decode_octal_escapes(self.root)
    }

    pub(crate) fn mount_point_path(&self) -> PathBuf {
        decode_octal_escapes(self.point)
    }
}

/// Returns the device numbers of all file systems that are mounted in a mount namespace, from the
/// text of its mountinfo.
pub(crate) fn list_device_numbers(mountinfo: &[u8]) -> BTreeSet<dev_t> {
    let lines = mountinfo.split(|byte| *byte == b'\n');
    lines
        .filter_map(MountLine::split)
        .map(|line| line.device_number)
        .collect()
}

fn parse_number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// Decodes a path from mountinfo. The kernel writes a space, tab, newline or backslash in it as an
/// octal code such as `\040`.
fn decode_octal_escapes(field: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(field.len());
    let mut remaining_bytes = field;
    loop {
        remaining_bytes = match remaining_bytes {
            [
                b'\\',
                a @ b'0'..=b'3',
                b @ b'0'..=b'7',
                c @ b'0'..=b'7',
                rest @ ..,
            ] => {
                path.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest
            }
            [byte, rest @ ..] => {
                path.push(*byte);
                rest
            }
            [] => return PathBuf::from(OsString::from_vec(path)),
        }
    }
}

/// A mount of a [`MountTable`]. Its paths are left out, because the callers look up mounts by id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MountEntry {
    pub(crate) id: u64,
    pub(crate) parent_id: u64,
    /// True if a new mount inside this mount also appears in other mounts (mount_namespaces(7)).
    pub(crate) is_shared: bool,
}

/// All mounts of a mount namespace, at the time when mountinfo was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MountTable(Vec<MountEntry>);

/// The error for a line of mountinfo that does not have the kernel's format. Line numbers begin
/// with 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line_number} is not a mount")]
pub struct MountInfoError {
    line_number: usize,
}

impl MountTable {
    pub(crate) fn parse(text: &[u8]) -> Result<Self, MountInfoError> {
        let lines = text.split(|byte| *byte == b'\n').enumerate();
        lines
            .filter(|(_, line)| !line.is_empty())
            .map(|(index, line)| {
                parse_entry(line).ok_or(MountInfoError {
                    line_number: index + 1,
                })
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    pub(crate) fn get(&self, id: u64) -> Option<MountEntry> {
        self.0.iter().find(|entry| entry.id == id).copied()
    }

    /// Reports whether another mount is mounted on the mount with this id.
    pub(crate) fn has_children(&self, id: u64) -> bool {
        self.0.iter().any(|entry| entry.parent_id == id)
    }
}

fn parse_entry(line: &[u8]) -> Option<MountEntry> {
    let line = MountLine::split(line)?;
    Some(MountEntry {
        id: line.id,
        parent_id: line.parent_id,
        is_shared: line.is_shared,
    })
}

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    pub fn mountinfo(text: &[u8]) {
        let escaped: Vec<u8> = text
            .iter()
            .flat_map(|byte| format!("\\{byte:03o}").into_bytes())
            .collect();
        assert_eq!(decode_octal_escapes(&escaped).as_os_str().as_bytes(), text);
        let Ok(table) = MountTable::parse(text) else {
            return;
        };
        let lines = text.split(|byte| *byte == b'\n');
        let lines: Vec<_> = lines.filter_map(MountLine::split).collect();
        assert_eq!(lines.len(), table.0.len());
        for line in lines {
            assert!(table.get(line.id).is_some());
            assert!(table.has_children(line.parent_id));
            let (root, point) = (line.root_path(), line.mount_point_path());
            assert!(root.as_os_str().len() <= line.root.len());
            assert!(point.as_os_str().len() <= line.point.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn mount_entry(id: u64, parent_id: u64, is_shared: bool) -> MountEntry {
        MountEntry {
            id,
            parent_id,
            is_shared,
        }
    }

    #[test]
    fn tags_say_how_mounts_spread() {
        for (line, is_shared) in [
            ("98:0 / / rw,noatime - ext3 /dev/root rw", false),
            ("98:0 / / rw shared:1 - ext3 /dev/root rw", true),
            ("98:0 / / rw master:1 - ext3 /dev/root rw", false),
            ("98:0 / / rw shared:7 master:1 - ext3 x rw", true),
            ("98:0 / / rw master:2 propagate_from:1 - ext3 x rw", false),
            ("98:0 / / rw unbindable - ext3 x rw", false),
            // A directory name that looks like a tag is not taken for one, because it is in
            // another field.
            (
                "0:5 /shared:1 /a\\040shared:2 rw - tmpfs shared:3 rw",
                false,
            ),
        ] {
            let line = format!("36 35 {line}");
            let expected = mount_entry(36, 35, is_shared);
            let table = MountTable::parse(line.as_bytes()).unwrap();
            assert_eq!(table, MountTable(vec![expected]), "{line}");
        }
    }

    #[test]
    fn mounts_are_found_by_id() {
        let text =
            b"1 0 0:2 / / rw - rootfs rootfs rw\n20 1 0:5 / /dev rw shared:2 - devtmpfs x rw\n";
        let table = MountTable::parse(text).unwrap();
        assert_eq!(table.get(20), Some(mount_entry(20, 1, true)));
        assert_eq!(table.get(2), None);
        assert!(table.has_children(1));
        assert!(!table.has_children(20));
    }

    #[test]
    fn other_text_is_refused() {
        for (text, line) in [
            ("36 35 98:0 / / rw,noatime", 1),
            ("36", 1),
            ("x 35 98:0 / / rw - ext3 x rw", 1),
            (
                "1 0 0:2 / / rw - rootfs rootfs rw\n-1 35 98:0 / / rw - ext3 x rw",
                2,
            ),
        ] {
            assert_eq!(
                MountTable::parse(text.as_bytes()),
                Err(MountInfoError { line_number: line }),
                "{text}"
            );
        }
    }

    #[test]
    fn this_machines_own_list_is_understood() {
        let text = std::fs::read("/proc/self/mountinfo").unwrap();
        let table = MountTable::parse(&text).unwrap();
        assert!(!table.0.is_empty());
    }

    #[test]
    fn unescapes_octal_and_nothing_else() {
        for (field, path) in [
            (r"/a\040b", "/a b"),
            (r"\011\012\134\043", "\t\n\\#"),
            (r"/a\04", r"/a\04"),
            (r"/a\", r"/a\"),
            (r"/a\888", r"/a\888"),
        ] {
            assert_eq!(
                decode_octal_escapes(field.as_bytes()),
                Path::new(path),
                "{field}"
            );
        }
    }
}
