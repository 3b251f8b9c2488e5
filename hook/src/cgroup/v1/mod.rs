//! cgroup v1: a list of rules per cgroup, in the control files `devices.list`
//! and `devices.allow` (the kernel's admin-guide/cgroup-v1/devices).

mod list;
#[cfg(test)]
mod on_this_kernel;

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use caps::{CapSet, Capability};

use super::CgroupDir;
use super::error::CgroupError;
use super::report::{LevelReport, Outcome};
use super::rule::DeviceRule;
pub(super) use list::DeviceList;

/// Adds what the cgroup's list lacks.
pub(super) fn allow(
    cgroup: &CgroupDir,
    rules: &[DeviceRule],
) -> Result<Vec<LevelReport>, CgroupError> {
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
    Ok(vec![LevelReport {
        cgroup: cgroup.dir.clone(),
        shared: false,
        outcome,
    }])
}

/// Whether a cgroup denies anything that its list shows.
pub(super) fn restricts(dir: &Path) -> Result<bool, CgroupError> {
    Ok(DeviceList::read(dir)? != DeviceList::AllowsAll)
}

/// Writes back what was in the list `before` and is no more, and tells how many
/// lines that was.
pub(super) fn restore(cgroup: &CgroupDir, before: &DeviceList) -> Result<usize, CgroupError> {
    let now = DeviceList::read(&cgroup.dir)?;
    let lost = before.without(&now);
    for line in &lost {
        write(&cgroup.dir, line).map_err(|source| CgroupError::Write {
            path: cgroup.dir.join("devices.allow"),
            rule: line.to_string(),
            source,
        })?;
    }
    Ok(lost.len())
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
fn write(dir: &Path, rule: &impl ToString) -> io::Result<()> {
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
            if !DeviceList::read(ancestor.dir)?.covers(rule) {
                return Ok(Refusal::Error(CgroupError::AncestorDenies {
                    cgroup: cgroup.dir.clone(),
                    ancestor: ancestor.dir.to_owned(),
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
        rule: rule.to_string(),
        source,
    }))
}

fn may_administer() -> bool {
    caps::has_cap(None, CapSet::Effective, Capability::CAP_SYS_ADMIN).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As runc leaves it.
    const USUAL: &str = "b *:* m\nc *:* m\nc 1:3 rwm\nc 136:* rwm\nc 10:183 r\n";

    /// A cgroup `mount/pod/container` made of plain files.
    fn fake(lists: [&str; 3]) -> (tempfile::TempDir, CgroupDir) {
        let temp = tempfile::tempdir().unwrap();
        let cgroup = CgroupDir {
            mount: temp.path().to_owned(),
            dir: temp.path().join("pod/container"),
            path: "/pod/container".into(),
        };
        std::fs::create_dir_all(&cgroup.dir).unwrap();
        for (level, list) in cgroup.levels().zip(lists) {
            std::fs::write(level.dir.join("devices.list"), list).unwrap();
        }
        (temp, cgroup)
    }

    fn outcome(levels: Vec<LevelReport>) -> Outcome {
        levels[0].outcome.clone()
    }

    #[test]
    fn writes_only_what_is_missing() {
        let (_temp, cgroup) = fake([USUAL, "a *:* rwm\n", "a *:* rwm\n"]);
        std::fs::write(cgroup.dir.join("devices.allow"), "").unwrap();

        let report = allow(
            &cgroup,
            &[DeviceRule::misc(183, "r"), DeviceRule::misc(229, "rw")],
        )
        .unwrap();

        assert_eq!(outcome(report), Outcome::Written { rules: 1 });
        let written = std::fs::read_to_string(cgroup.dir.join("devices.allow")).unwrap();
        assert_eq!(written, "c 10:229 rw");
    }

    #[test]
    fn writes_nothing_if_all_is_there() {
        // There is no devices.allow that could be opened.
        let (_temp, cgroup) = fake([USUAL, "a *:* rwm\n", "a *:* rwm\n"]);
        let report = allow(&cgroup, &[DeviceRule::misc(183, "r")]).unwrap();
        assert_eq!(outcome(report), Outcome::AlreadyAllowed);
    }

    #[test]
    fn writes_back_what_was_lost() {
        let (_temp, cgroup) = fake(["c 1:3 rwm\n", "a *:* rwm\n", "a *:* rwm\n"]);
        std::fs::write(cgroup.dir.join("devices.allow"), "").unwrap();

        let before = DeviceList::parse("c 1:3 rw\nb 8:* r\n").unwrap();
        assert_eq!(restore(&cgroup, &before).unwrap(), 1);
        let written = std::fs::read_to_string(cgroup.dir.join("devices.allow")).unwrap();
        assert_eq!(written, "b 8:* r");
        assert_eq!(restore(&cgroup, &DeviceList::AllowsAll).unwrap(), 0);
    }

    #[test]
    fn names_the_ancestor_that_denies() {
        let (_temp, cgroup) = fake(["", "c 10:183 r\n", "a *:* rwm\n"]);
        let pod = cgroup.dir.parent().unwrap().to_owned();
        let refused = io::Error::from_raw_os_error(libc::EPERM);

        let Refusal::Error(error) =
            explain(&cgroup, &DeviceRule::misc(183, "rw"), refused).unwrap()
        else {
            panic!("not an error");
        };

        let expected = format!(
            "device c 10:183 rw is not allowed in cgroup {pod}, which encloses the container's \
             cgroup {dir}; allow it there first: give it to the enclosing container, or set \
             DeviceAllow= on the systemd unit",
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
            let refusal = explain(&cgroup, &DeviceRule::misc(183, "r"), error).unwrap();
            assert_eq!(
                matches!(refusal, Refusal::Privilege),
                privilege,
                "errno {errno}"
            );
        }
    }
}
