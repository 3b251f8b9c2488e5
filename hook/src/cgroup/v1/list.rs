//! Parses `devices.list`, in which the kernel lists the devices that a cgroup v1 allows, one per
//! line, such as `c 10:183 rw`.

use std::fmt;
use std::path::Path;

use crate::cgroup::error::CgroupError;
use crate::cgroup::locate;
use crate::cgroup::rule::{Access, DeviceKind, DeviceRule};

/// The maximum size of `devices.list` in bytes. It is enough for about 60,000 rules.
const MAX_DEVICE_LIST_BYTES: u64 = 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cgroup) enum CgroupDeviceList {
    /// The content of the file is `a *:* rwm`. The kernel then allows all devices except those that
    /// were written to `devices.deny`. No file shows these exceptions.
    AllDevices,
    /// The file lists the allowed devices. The kernel denies all others.
    AllowedEntries(Vec<ListEntry>),
}

/// A line of `devices.list`, such as `c 10:183 rw`. `None` in `major` or `minor` stands for `*`,
/// which matches every number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cgroup) struct ListEntry {
    kind: DeviceKind,
    major: Option<u32>,
    minor: Option<u32>,
    access: Access,
}

impl CgroupDeviceList {
    pub(in crate::cgroup) fn read(dir: &Path) -> Result<Self, CgroupError> {
        let path = dir.join("devices.list");
        let content = locate::read_file(&path, MAX_DEVICE_LIST_BYTES)?;
        Self::parse(&String::from_utf8_lossy(&content)).map_err(|line| CgroupError::Malformed {
            path,
            line: line.to_owned(),
        })
    }

    /// Parses the content of `devices.list`. The error is the first line that is not an entry.
    pub(super) fn parse(content: &str) -> Result<Self, &str> {
        let mut entries = Vec::new();
        for line in content.lines().filter(|line| !line.is_empty()) {
            if line.starts_with("a ") {
                return Ok(Self::AllDevices);
            }
            entries.push(ListEntry::parse(line).ok_or(line)?);
        }
        Ok(Self::AllowedEntries(entries))
    }

    /// Returns the entries of this list that `other_list` lacks: no single entry of it allows as
    /// much. Returns no entry if one of the lists allows all devices, because its exceptions are
    /// unknown.
    pub(super) fn find_missing_entries(&self, other_list: &Self) -> Vec<ListEntry> {
        let (Self::AllowedEntries(entries), Self::AllowedEntries(other_entries)) =
            (self, other_list)
        else {
            return Vec::new();
        };
        let mut missing_entries = entries.clone();
        missing_entries.retain(|entry| {
            !other_entries
                .iter()
                .any(|other_entry| other_entry.includes(entry))
        });
        missing_entries
    }

    /// Reports whether a single entry allows every access of `rule`. The kernel does not combine
    /// entries: two lines with `r` and with `w` do not allow `rw`.
    pub(in crate::cgroup) fn allows(&self, rule: &DeviceRule) -> bool {
        match self {
            Self::AllDevices => true,
            Self::AllowedEntries(entries) => entries.iter().any(|entry| entry.allows(rule)),
        }
    }
}

impl fmt::Display for ListEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let format_number = |number: Option<u32>| match number {
            None => "*".to_owned(),
            Some(number) => number.to_string(),
        };
        let (major, minor) = (format_number(self.major), format_number(self.minor));
        write!(f, "{} {major}:{minor} {}", self.kind, self.access)
    }
}

impl ListEntry {
    /// Parses a line such as `c 10:183 rw` or `b *:* m`.
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(' ');
        let kind = DeviceKind::parse(fields.next()?)?;
        let (major, minor) = fields.next()?.split_once(':')?;
        let access = Access::parse(fields.next()?).ok()?;
        if fields.next().is_some() {
            return None;
        }
        Some(Self {
            kind,
            major: parse_number(major)?,
            minor: parse_number(minor)?,
            access,
        })
    }

    fn includes(&self, other: &Self) -> bool {
        self.kind == other.kind
            && (self.major.is_none() || self.major == other.major)
            && (self.minor.is_none() || self.minor == other.minor)
            && self.access.contains(other.access)
    }

    fn allows(&self, rule: &DeviceRule) -> bool {
        self.kind == rule.kind()
            && self.major.is_none_or(|major| major == rule.major())
            && self.minor.is_none_or(|minor| minor == rule.minor())
            && self.access.contains(rule.access())
    }
}

fn parse_number(text: &str) -> Option<Option<u32>> {
    match text {
        "*" => Some(None),
        digits => digits.parse().ok().map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list of a container that runc has started.
    const RUNC_LIST: &str = "b *:* m\nc *:* m\nc 1:3 rwm\nc 136:* rwm\nc 10:183 r\n";

    #[test]
    fn knows_what_a_list_covers() {
        for (list, minor, access, covered) in [
            ("a *:* rwm\n", 183, "rwm", true),
            (RUNC_LIST, 183, "r", true),
            (RUNC_LIST, 183, "rw", false),
            (RUNC_LIST, 183, "m", true),
            // The kernel does not combine two lines.
            (RUNC_LIST, 183, "rm", false),
            (RUNC_LIST, 184, "r", false),
            ("", 183, "r", false),
            ("c 10:* rw\n", 7, "rw", true),
            ("c *:183 rw\n", 183, "rw", true),
            ("b 10:183 rwm\n", 183, "r", false),
        ] {
            let parsed = CgroupDeviceList::parse(list).unwrap();
            assert_eq!(
                parsed.allows(&crate::cgroup::rule::misc(minor, access)),
                covered,
                "{list:?} {minor} {access}"
            );
        }
    }

    #[test]
    fn refuses_a_list_that_makes_no_sense() {
        for list in [
            "x 1:3 rwm",
            "c 1 rwm",
            "c 1:x rwm",
            "c 1:3",
            "c 1:3 q",
            "c 1:3 r w",
            "c",
        ] {
            assert_eq!(CgroupDeviceList::parse(list), Err(list));
        }
    }

    #[test]
    fn finds_lines_that_another_list_lacks() {
        for (before, now, missing_lines) in [
            (RUNC_LIST, RUNC_LIST, vec![]),
            (RUNC_LIST, "c *:* rwm\n", vec!["b *:* m"]),
            ("c 1:* r\nc 1:3 rw\n", "c 1:3 rwm\n", vec!["c 1:* r"]),
            (RUNC_LIST, "a *:* rwm\n", vec![]),
            ("a *:* rwm\n", "", vec![]),
        ] {
            let parse = |list| CgroupDeviceList::parse(list).unwrap();
            let found = parse(before).find_missing_entries(&parse(now));
            let found: Vec<_> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found, missing_lines, "{before:?} and {now:?}");
        }
    }
}
