//! Tests of the running kernel's v1 lists with a process in the cgroup. They need root and a
//! mounted `devices` hierarchy.

use std::fs;
use std::path::Path;

use crate::cgroup::report::RuleChangeOutcome;
use crate::cgroup::rule::{Access, DeviceKind, DeviceRule};
use crate::cgroup::tests::prober::{FUSE, HWRNG, Prober, TestCgroup, skip};
use crate::cgroup::{CgroupDir, CgroupError, DeviceCgroup, KernelMountPaths, SpecRules};

/// Returns the root of the hierarchy, if there is one that this process may change.
fn hierarchy() -> Option<CgroupV1> {
    let found = match DeviceCgroup::find(&KernelMountPaths::default(), 1) {
        Ok(Some(DeviceCgroup::V1(cgroup))) => cgroup.mount,
        other => {
            skip(&format!("no v1 devices hierarchy here: {other:?}"));
            return None;
        }
    };
    match TestCgroup::new(&found) {
        Ok(parent) => Some(CgroupV1 { parent }),
        Err(error) => {
            skip(&format!(
                "cannot make cgroups in {}: {error}",
                found.display()
            ));
            None
        }
    }
}

struct CgroupV1 {
    parent: TestCgroup,
}

/// Denies everything except null. This works only as long as there is no cgroup below.
fn restrict(dir: &Path) {
    fs::write(dir.join("devices.deny"), "a").unwrap();
    fs::write(dir.join("devices.allow"), "c 1:3 rwm").unwrap();
}

fn rule((major, minor): (u32, u32), access: &str) -> DeviceRule {
    let access = Access::parse(access).unwrap();
    DeviceRule::new(DeviceKind::Character, major, minor, access)
}

fn allow(prober: &Prober, rules: &[DeviceRule]) -> Result<RuleChangeOutcome, CgroupError> {
    let cgroup = DeviceCgroup::from_pid(prober.pid()).unwrap().unwrap();
    let report = cgroup.allow(rules, &SpecRules::default())?;
    Ok(report.cgroups[0].outcome.clone())
}

#[test]
fn a_rule_is_added_once() {
    let Some(CgroupV1 { parent }) = hierarchy() else {
        return;
    };
    let leaf = TestCgroup::new(&parent.dir).unwrap();
    let mut prober = Prober::in_cgroup(&leaf.dir);
    restrict(&leaf.dir);
    assert!(!prober.may_open("r", HWRNG));

    let rules = [rule(HWRNG, "r"), rule((1, 3), "rw")];
    assert_eq!(
        allow(&prober, &rules).unwrap(),
        RuleChangeOutcome::Written { rule_count: 1 }
    );
    assert!(prober.may_open("r", HWRNG));
    assert!(!prober.may_open("rw", HWRNG));
    assert!(!prober.may_open("r", FUSE));
    assert_eq!(
        allow(&prober, &rules).unwrap(),
        RuleChangeOutcome::AlreadyAllowed
    );
}

#[test]
fn an_exception_that_the_list_does_not_show_is_removed() {
    let Some(CgroupV1 { parent }) = hierarchy() else {
        return;
    };
    let leaf = TestCgroup::new(&parent.dir).unwrap();
    let mut prober = Prober::in_cgroup(&leaf.dir);
    fs::write(leaf.dir.join("devices.deny"), "c 10:183 rwm").unwrap();
    assert!(!prober.may_open("r", HWRNG));

    let outcome = allow(&prober, &[rule(HWRNG, "rwm")]).unwrap();
    assert_eq!(outcome, RuleChangeOutcome::AlreadyAllowed);
    assert!(prober.may_open("r", HWRNG));
}

#[test]
fn an_ancestor_that_denies_is_named() {
    let Some(CgroupV1 { parent }) = hierarchy() else {
        return;
    };
    restrict(&parent.dir);
    let leaf = TestCgroup::new(&parent.dir).unwrap();
    let mut prober = Prober::in_cgroup(&leaf.dir);

    match allow(&prober, &[rule(HWRNG, "r")]) {
        Err(CgroupError::AncestorDenies { ancestor, .. }) => assert_eq!(ancestor, parent.dir),
        other => panic!("{other:?}"),
    }
    assert!(!prober.may_open("r", HWRNG));
}

#[test]
fn without_capabilities_nothing_is_done() {
    let Some(CgroupV1 { parent }) = hierarchy() else {
        return;
    };
    let leaf = TestCgroup::new(&parent.dir).unwrap();
    let mut prober = Prober::in_cgroup(&leaf.dir);
    restrict(&leaf.dir);

    // The capabilities are dropped for this thread only.
    let held = caps::read(None, caps::CapSet::Effective).unwrap();
    caps::clear(None, caps::CapSet::Effective).unwrap();
    let outcome = allow(&prober, &[rule(HWRNG, "r")]);
    caps::set(None, caps::CapSet::Effective, &held).unwrap();

    assert!(
        matches!(outcome, Ok(RuleChangeOutcome::NoPermission { .. })),
        "{outcome:?}"
    );
    assert!(!prober.may_open("r", HWRNG));
}

/// A rule that is denied in the root cgroup is denied to the whole host.
#[test]
fn nothing_is_denied_where_a_container_has_no_cgroup() {
    let Some(CgroupV1 { parent }) = hierarchy() else {
        return;
    };
    let mount = parent.dir.parent().unwrap();
    let root = DeviceCgroup::V1(CgroupDir {
        mount: mount.to_owned(),
        dir: mount.to_owned(),
        path: "/".into(),
    });
    let unused = rule((240, 250), "rw");
    let warnings = root.revoke(&[unused], &[], &SpecRules::default()).unwrap();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let leaf = TestCgroup::new(&parent.dir).unwrap();
    restrict(&leaf.dir);
    let allowed = fs::write(leaf.dir.join("devices.allow"), "c 240:250 rw");
    fs::write(mount.join("devices.allow"), "c 240:250 rw").unwrap();
    allowed.unwrap();
}
