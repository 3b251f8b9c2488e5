//! Tests of v1 lists in plain files and in the running kernel.

mod kernel;

use super::*;
use crate::cgroup::rule::misc;

/// The list of a container that runc has started.
const RUNC_LIST: &str = "b *:* m\nc *:* m\nc 1:3 rwm\nc 136:* rwm\nc 10:183 r\n";

/// Creates a cgroup `mount/pod/container` of plain files.
fn fake(lists: [&str; 3]) -> (tempfile::TempDir, CgroupDir) {
    let temp = tempfile::tempdir().unwrap();
    let cgroup = CgroupDir {
        mount: temp.path().to_owned(),
        dir: temp.path().join("pod/container"),
        path: "/pod/container".into(),
    };
    std::fs::create_dir_all(&cgroup.dir).unwrap();
    for (level, list) in cgroup.self_and_ancestors().zip(lists) {
        std::fs::write(level.dir.join("devices.list"), list).unwrap();
    }
    (temp, cgroup)
}

fn outcome(levels: Vec<CgroupReport>) -> RuleChangeOutcome {
    levels[0].outcome.clone()
}

#[test]
fn writes_only_what_is_missing() {
    let (_temp, cgroup) = fake([RUNC_LIST, "a *:* rwm\n", "a *:* rwm\n"]);
    std::fs::write(cgroup.dir.join("devices.allow"), "").unwrap();

    let report = allow(&cgroup, &[misc(183, "r"), misc(229, "rw")]).unwrap();

    assert_eq!(
        outcome(report),
        RuleChangeOutcome::Written { rule_count: 1 }
    );
    let written = std::fs::read_to_string(cgroup.dir.join("devices.allow")).unwrap();
    assert_eq!(written, "c 10:229 rw");
}

#[test]
fn writes_nothing_if_all_is_there() {
    // The directory has no `devices.allow`, so that a write would fail.
    let (_temp, cgroup) = fake([RUNC_LIST, "a *:* rwm\n", "a *:* rwm\n"]);
    let report = allow(&cgroup, &[misc(183, "r")]).unwrap();
    assert_eq!(outcome(report), RuleChangeOutcome::AlreadyAllowed);
}

#[test]
fn writes_back_what_was_lost() {
    let (_temp, cgroup) = fake(["c 1:3 rwm\n", "a *:* rwm\n", "a *:* rwm\n"]);
    std::fs::write(cgroup.dir.join("devices.allow"), "").unwrap();

    let before = CgroupDeviceList::parse("c 1:3 rw\nb 8:* r\n").unwrap();
    assert_eq!(restore_entries(&cgroup, &before).unwrap(), 1);
    let written = std::fs::read_to_string(cgroup.dir.join("devices.allow")).unwrap();
    assert_eq!(written, "b 8:* r");
    assert_eq!(
        restore_entries(&cgroup, &CgroupDeviceList::AllDevices).unwrap(),
        0
    );
}

#[test]
fn names_the_ancestor_that_denies() {
    let (_temp, cgroup) = fake(["", "c 10:183 r\n", "a *:* rwm\n"]);
    let pod = cgroup.dir.parent().unwrap().to_owned();
    let refused = io::Error::from_raw_os_error(libc::EPERM);

    let WriteRefusal::Error(error) = explain_refusal(&cgroup, &misc(183, "rw"), refused).unwrap()
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
    let lacks = !privilege::has_capabilities(&[Capability::CAP_SYS_ADMIN]);
    for (errno, privilege) in [
        (libc::EACCES, lacks),
        (libc::EPERM, lacks),
        (libc::EROFS, true),
        (libc::EINVAL, false),
    ] {
        let error = io::Error::from_raw_os_error(errno);
        let refusal = explain_refusal(&cgroup, &misc(183, "r"), error).unwrap();
        assert_eq!(
            matches!(refusal, WriteRefusal::MissingPrivilege),
            privilege,
            "errno {errno}"
        );
    }
}
