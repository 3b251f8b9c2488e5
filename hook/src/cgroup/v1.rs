//! cgroup v1: a list of rules per cgroup, in the control files `devices.list`
//! and `devices.allow` (the kernel's admin-guide/cgroup-v1/devices).

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use caps::{CapSet, Capability};

use super::error::CgroupError;
use super::report::{LevelReport, Outcome, Report};
use super::rule::{Access, DeviceKind, DeviceRule};
use super::{CgroupDir, kernel_file};

/// Most bytes of `devices.list`: some ten thousand rules.
const LIST_LIMIT: u64 = 1024 * 1024;

/// See [`DeviceCgroup::allow`](super::DeviceCgroup::allow).
pub(super) fn allow(cgroup: &CgroupDir, rules: &[DeviceRule]) -> Result<Report, CgroupError> {
    let outcome = match DeviceList::read(&cgroup.dir)? {
        // The list is then about exceptions, but the kernel does not show them.
        // A write removes one, and is nothing where there is none.
        DeviceList::AllowsAll => match write_all(cgroup, rules)? {
            Outcome::NoPermission { .. } | Outcome::Written { .. } => Outcome::AlreadyAllowed,
            outcome => outcome,
        },
        list => {
            let missing: Vec<_> = rules.iter().filter(|rule| !list.covers(rule)).collect();
            if missing.is_empty() {
                Outcome::AlreadyAllowed
            } else {
                write_all(cgroup, missing)?
            }
        }
    };
    Ok(Report {
        levels: vec![LevelReport {
            cgroup: cgroup.dir.clone(),
            outcome,
        }],
    })
}

fn write_all<'a>(
    cgroup: &CgroupDir,
    rules: impl IntoIterator<Item = &'a DeviceRule>,
) -> Result<Outcome, CgroupError> {
    const NO_PERMISSION: Outcome = Outcome::NoPermission {
        operation: "write devices.allow",
    };
    let mut written = 0;
    for rule in rules {
        match write(&cgroup.dir, rule) {
            Ok(()) => written += 1,
            Err(source) => match explain(cgroup, rule, source)? {
                Refusal::Privilege => return Ok(NO_PERMISSION),
                Refusal::Error(error) => return Err(error),
            },
        }
    }
    Ok(Outcome::Written { rules: written })
}

/// The kernel takes one rule per write.
fn write(dir: &Path, rule: &DeviceRule) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .open(dir.join("devices.allow"))?;
    file.write_all(rule.to_string().as_bytes())
}

/// Why a rule was refused.
enum Refusal {
    Privilege,
    Error(CgroupError),
}

/// EPERM has two causes: an ancestor that does not have the device, or a writer
/// without CAP_SYS_ADMIN.
fn explain(
    cgroup: &CgroupDir,
    rule: &DeviceRule,
    source: io::Error,
) -> Result<Refusal, CgroupError> {
    let refused = matches!(
        source.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
    );
    if refused {
        for ancestor in cgroup.levels().skip(1) {
            if !DeviceList::read(ancestor)?.covers(rule) {
                return Ok(Refusal::Error(CgroupError::AncestorDenies {
                    cgroup: cgroup.dir.clone(),
                    ancestor: ancestor.to_owned(),
                    rule: *rule,
                }));
            }
        }
        if source.raw_os_error() != Some(libc::EPERM) || !may_administer() {
            return Ok(Refusal::Privilege);
        }
    }
    Ok(Refusal::Error(CgroupError::Write {
        path: cgroup.dir.join("devices.allow"),
        rule: *rule,
        source,
    }))
}

fn may_administer() -> bool {
    caps::has_cap(None, CapSet::Effective, Capability::CAP_SYS_ADMIN).unwrap_or(false)
}

/// What `devices.list` says.
#[derive(Debug, PartialEq, Eq)]
enum DeviceList {
    /// `a *:* rwm`: everything, but for exceptions that are not shown.
    AllowsAll,
    /// Nothing but these.
    Allows(Vec<ListEntry>),
}

/// A line of the list; `None` is `*`.
#[derive(Debug, PartialEq, Eq)]
struct ListEntry {
    kind: DeviceKind,
    major: Option<u32>,
    minor: Option<u32>,
    access: Access,
}

impl DeviceList {
    fn read(dir: &Path) -> Result<Self, CgroupError> {
        let path = dir.join("devices.list");
        let content = kernel_file::read(&path, LIST_LIMIT)?;
        Self::parse(&String::from_utf8_lossy(&content)).map_err(|line| CgroupError::Malformed {
            path,
            line: line.to_owned(),
        })
    }

    /// Gives back the first line that makes no sense.
    fn parse(content: &str) -> Result<Self, &str> {
        let mut entries = Vec::new();
        for line in content.lines().filter(|line| !line.is_empty()) {
            if line.starts_with("a ") {
                return Ok(Self::AllowsAll);
            }
            entries.push(ListEntry::parse(line).ok_or(line)?);
        }
        Ok(Self::Allows(entries))
    }

    /// Whether one line allows all of the rule: the kernel does not add lines up.
    fn covers(&self, rule: &DeviceRule) -> bool {
        match self {
            Self::AllowsAll => true,
            Self::Allows(entries) => entries.iter().any(|entry| entry.covers(rule)),
        }
    }
}

impl ListEntry {
    /// Reads `c 10:183 rw` or `b *:* m`.
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(' ');
        let kind = match fields.next()? {
            "b" => DeviceKind::Block,
            "c" => DeviceKind::Char,
            _ => return None,
        };
        let (major, minor) = fields.next()?.split_once(':')?;
        let access = Access::parse(fields.next()?).ok()?;
        if fields.next().is_some() {
            return None;
        }
        Some(Self {
            kind,
            major: number(major)?,
            minor: number(minor)?,
            access,
        })
    }

    fn covers(&self, rule: &DeviceRule) -> bool {
        self.kind == rule.kind()
            && self.major.is_none_or(|major| major == rule.major())
            && self.minor.is_none_or(|minor| minor == rule.minor())
            && self.access.contains(rule.access())
    }
}

fn number(text: &str) -> Option<Option<u32>> {
    match text {
        "*" => Some(None),
        digits => digits.parse().ok().map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As runc leaves it.
    const USUAL: &str = "b *:* m\nc *:* m\nc 1:3 rwm\nc 136:* rwm\nc 10:183 r\n";

    fn rule(minor: u32, access: &str) -> DeviceRule {
        DeviceRule::new(DeviceKind::Char, 10, minor, Access::parse(access).unwrap()).unwrap()
    }

    /// A cgroup `mount/pod/container` made of plain files.
    fn fake(lists: [&str; 3]) -> (tempfile::TempDir, CgroupDir) {
        let temp = tempfile::tempdir().unwrap();
        let cgroup = CgroupDir {
            mount: temp.path().to_owned(),
            dir: temp.path().join("pod/container"),
            path: "/pod/container".into(),
        };
        std::fs::create_dir_all(&cgroup.dir).unwrap();
        for (dir, list) in cgroup.levels().zip(lists) {
            std::fs::write(dir.join("devices.list"), list).unwrap();
        }
        (temp, cgroup)
    }

    fn outcome(report: Report) -> Outcome {
        report.levels[0].outcome.clone()
    }

    #[test]
    fn knows_what_a_list_covers() {
        for (list, minor, access, covered) in [
            ("a *:* rwm\n", 183, "rwm", true),
            (USUAL, 183, "r", true),
            (USUAL, 183, "rw", false),
            (USUAL, 183, "m", true),
            // Two lines that would do together do not count.
            (USUAL, 183, "rm", false),
            (USUAL, 184, "r", false),
            ("", 183, "r", false),
            ("c 10:* rw\n", 7, "rw", true),
            ("c *:183 rw\n", 183, "rw", true),
            ("b 10:183 rwm\n", 183, "r", false),
        ] {
            let parsed = DeviceList::parse(list).unwrap();
            assert_eq!(
                parsed.covers(&rule(minor, access)),
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
            assert_eq!(DeviceList::parse(list), Err(list));
        }
    }

    #[test]
    fn writes_only_what_is_missing() {
        let (_temp, cgroup) = fake([USUAL, "a *:* rwm\n", "a *:* rwm\n"]);
        std::fs::write(cgroup.dir.join("devices.allow"), "").unwrap();

        let report = allow(&cgroup, &[rule(183, "r"), rule(229, "rw")]).unwrap();

        assert_eq!(outcome(report), Outcome::Written { rules: 1 });
        let written = std::fs::read_to_string(cgroup.dir.join("devices.allow")).unwrap();
        assert_eq!(written, "c 10:229 rw");
    }

    #[test]
    fn writes_nothing_if_all_is_there() {
        // There is no devices.allow that could be opened.
        let (_temp, cgroup) = fake([USUAL, "a *:* rwm\n", "a *:* rwm\n"]);
        let report = allow(&cgroup, &[rule(183, "r")]).unwrap();
        assert_eq!(outcome(report), Outcome::AlreadyAllowed);
    }

    #[test]
    fn names_the_ancestor_that_denies() {
        let (_temp, cgroup) = fake(["", "c 10:183 r\n", "a *:* rwm\n"]);
        let pod = cgroup.dir.parent().unwrap().to_owned();
        let refused = io::Error::from_raw_os_error(libc::EPERM);

        let Refusal::Error(error) = explain(&cgroup, &rule(183, "rw"), refused).unwrap() else {
            panic!("not an error");
        };

        let expected = format!(
            "cgroup {pod} does not allow c 10:183 rw, so {dir} cannot: \
             write \"c 10:183 rw\" to {pod}/devices.allow, or set DeviceAllow= on its systemd unit",
            pod = pod.display(),
            dir = cgroup.dir.display(),
        );
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn tells_missing_privileges_from_other_failures() {
        let (_temp, cgroup) = fake(["", "a *:* rwm\n", "a *:* rwm\n"]);
        for (errno, privilege) in [
            (libc::EACCES, true),
            (libc::EROFS, true),
            (libc::EPERM, !may_administer()),
            (libc::EINVAL, false),
        ] {
            let error = io::Error::from_raw_os_error(errno);
            let refusal = explain(&cgroup, &rule(183, "r"), error).unwrap();
            assert_eq!(
                matches!(refusal, Refusal::Privilege),
                privilege,
                "errno {errno}"
            );
        }
    }
}
