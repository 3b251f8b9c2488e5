//! Tests which programs are replaced, how, and what is reported.

mod enclosing;
mod hidden;
mod refused;

use std::cell::Cell;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::fake_kernel::{Change, FakeKernel};
use super::runtime_programs::{allow_everything, deny_everything};
use crate::cgroup::CgroupDir;
use crate::cgroup::error::CgroupError;
use crate::cgroup::report::RuleChangeOutcome::{self, *};
use crate::cgroup::rule::{DeviceRule, misc};
use crate::cgroup::spec_rules::SpecRules;
use crate::cgroup::v2::assembler;
use crate::cgroup::v2::insn::Instruction;
use crate::cgroup::v2::request::AccessRequest;
use crate::cgroup::v2::{RequiredChange, change_programs_with_kernel};
use crate::sys::bpf::{BPF_F_ALLOW_MULTI, MAX_ATTACHED_PROGRAMS};

const ALLOW_OVERRIDE: u32 = 1;
const LEAF: &str = "/cg/pod.slice/container";
const POD: &str = "/cg/pod.slice";
const ROOT: &str = "/cg";

fn cgroup(mount: &str, dir: &str) -> CgroupDir {
    CgroupDir {
        mount: mount.into(),
        dir: dir.into(),
        path: Path::new("/").join(Path::new(dir).strip_prefix(mount).unwrap()),
    }
}

fn request(minor: u32) -> AccessRequest {
    AccessRequest::expand_rule(misc(minor, "r")).last().unwrap()
}

/// Requests `c 10:183 rw` in a container at [`LEAF`].
fn allow(kernel: &FakeKernel) -> Result<Vec<(PathBuf, RuleChangeOutcome)>, CgroupError> {
    allow_in(kernel, &cgroup(ROOT, LEAF))
}

fn allow_in(
    kernel: &FakeKernel,
    cgroup: &CgroupDir,
) -> Result<Vec<(PathBuf, RuleChangeOutcome)>, CgroupError> {
    change(kernel, cgroup, &[], &[misc(183, "rw")])
}

/// Changes rules, with a specification that allows `c 10:182 rw`.
fn change(
    kernel: &FakeKernel,
    cgroup: &CgroupDir,
    revoked_rules: &[DeviceRule],
    rules: &[DeviceRule],
) -> Result<Vec<(PathBuf, RuleChangeOutcome)>, CgroupError> {
    let required = RequiredChange {
        rules,
        revoked_rules,
        spec_rules: &SpecRules::from_spec(&[(&misc(182, "rw")).into()]),
    };
    let levels = change_programs_with_kernel(kernel, cgroup, required)?;
    Ok(levels
        .into_iter()
        .map(|level| (level.cgroup, level.outcome))
        .collect())
}

/// At no moment are both devices denied or both allowed, and the program does not grow.
#[test]
fn a_device_takes_the_place_of_another_in_one_replacement() {
    for hides in [false, true] {
        let kernel = FakeKernel { hides, ..kernel() };
        let spec = SpecRules::from_spec(&[(&misc(182, "rw")).into()]);
        kernel.with(
            LEAF,
            BPF_F_ALLOW_MULTI,
            &[assembler::generate_program(&spec)],
        );
        kernel.with(POD, BPF_F_ALLOW_MULTI, &[allow_everything()]);
        let mut lengths = Vec::new();
        for (gone, here) in [(182, 183), (183, 182), (182, 183), (183, 182), (182, 183)] {
            let before = kernel.changes.borrow().len();
            let rules = [gone, here].map(|minor| [misc(minor, "rw")]);
            change(&kernel, &cgroup(ROOT, LEAF), &rules[0], &rules[1]).unwrap();
            assert_eq!(kernel.changes.borrow().len(), before + 1);
            assert!(
                !allows_request(&kernel, gone) && allows_request(&kernel, here),
                "{hides}"
            );
            lengths.push(kernel.code(kernel.attached(LEAF)[0]).len());
        }
        assert_eq!(lengths[2], lengths[4]);
        change(&kernel, &cgroup(ROOT, LEAF), &[misc(183, "rw")], &[]).unwrap();
        assert!(!allows_request(&kernel, 183));
    }
}

fn levels<const N: usize>(
    levels: [(&str, RuleChangeOutcome); N],
) -> Vec<(PathBuf, RuleChangeOutcome)> {
    let levels = levels.into_iter();
    levels.map(|(dir, outcome)| (dir.into(), outcome)).collect()
}

/// Returns a kernel that must deny `c 10:184` to the container at every moment.
fn kernel() -> FakeKernel {
    let kernel = FakeKernel::default();
    let denied = (LEAF.into(), request(184));
    kernel.always_denied.borrow_mut().push(denied);
    kernel
}

fn allows_request(kernel: &FakeKernel, minor: u32) -> bool {
    kernel.allows_request(Path::new(LEAF), &request(minor))
}

#[test]
fn leaves_a_container_without_programs_alone() {
    let kernel = FakeKernel::default();
    assert_eq!(
        allow(&kernel).unwrap(),
        levels([(LEAF, NoProgram), (POD, NoProgram)])
    );
    assert_eq!(*kernel.changes.borrow(), []);
}

#[test]
fn replaces_what_denies_and_nothing_else() {
    let kernel = kernel();
    let leaf = kernel.with(LEAF, BPF_F_ALLOW_MULTI, &[deny_everything()]);
    kernel.with(POD, BPF_F_ALLOW_MULTI, &[allow_everything()]);
    kernel.with(ROOT, BPF_F_ALLOW_MULTI, &[allow_everything()]);

    assert_eq!(
        allow(&kernel).unwrap(),
        levels([
            (
                LEAF,
                Rewritten {
                    program_id: leaf[0]
                }
            ),
            (POD, AlreadyAllowed),
        ])
    );
    let new = kernel.attached(LEAF)[0];
    assert_eq!(
        *kernel.changes.borrow(),
        [Change::Replace { old: leaf[0], new }]
    );
    assert!(allows_request(&kernel, 183));
}

#[test]
fn a_second_call_changes_nothing() {
    let kernel = kernel();
    kernel.with(LEAF, BPF_F_ALLOW_MULTI, &[deny_everything()]);
    allow(&kernel).unwrap();
    let changes = kernel.changes.borrow().len();

    assert_eq!(allow(&kernel).unwrap()[0].1, AlreadyAllowed);
    assert_eq!(kernel.changes.borrow().len(), changes);
}

#[test]
fn every_program_of_the_container_and_its_slice_that_denies_is_replaced() {
    let kernel = kernel();
    let deny = deny_everything;
    let leaf = kernel.with(
        LEAF,
        BPF_F_ALLOW_MULTI,
        &[deny(), allow_everything(), deny()],
    );
    let pod = kernel.with(POD, BPF_F_ALLOW_MULTI, &[deny()]);

    assert_eq!(
        allow(&kernel).unwrap(),
        levels([
            (
                LEAF,
                Rewritten {
                    program_id: leaf[0]
                }
            ),
            (
                LEAF,
                Rewritten {
                    program_id: leaf[2]
                }
            ),
            (POD, Rewritten { program_id: pod[0] }),
        ])
    );
    assert!(allows_request(&kernel, 183));
    assert_eq!(kernel.attached(LEAF)[1], leaf[1]);
}

#[test]
fn without_replace_the_new_program_comes_before_the_old_one_goes() {
    let kernel = FakeKernel {
        cannot_replace: true,
        ..kernel()
    };
    let old = kernel.with(LEAF, BPF_F_ALLOW_MULTI, &[deny_everything()])[0];

    assert_eq!(allow(&kernel).unwrap()[0].1, Rewritten { program_id: old });
    assert_eq!(
        *kernel.changes.borrow(),
        [
            Change::Attach {
                program: kernel.attached(LEAF)[0],
                flags: BPF_F_ALLOW_MULTI
            },
            Change::Detach { program: old },
        ]
    );
}

#[test]
fn without_detach_nothing_is_wider_and_the_error_explains_it() {
    let kernel = FakeKernel {
        cannot_replace: true,
        detach_fails: Some(Errno::EBUSY),
        ..kernel()
    };
    let old = kernel.with(LEAF, BPF_F_ALLOW_MULTI, &[deny_everything()])[0];

    let error = allow(&kernel).unwrap_err().to_string();
    assert_eq!(
        error,
        format!("cannot replace device program {old} of cgroup {LEAF}")
    );
    assert!(!allows_request(&kernel, 183));
}

#[test]
fn single_programs_keep_their_flags() {
    for flags in [0, ALLOW_OVERRIDE] {
        let kernel = kernel();
        let old = kernel.with(LEAF, flags, &[deny_everything()])[0];

        assert_eq!(allow(&kernel).unwrap()[0].1, Rewritten { program_id: old });
        let program = kernel.attached(LEAF)[0];
        assert_eq!(
            *kernel.changes.borrow(),
            [Change::Attach { program, flags }]
        );
        assert!(allows_request(&kernel, 183));
    }
}

#[test]
fn overridden_programs_have_no_say() {
    let kernel = kernel();
    let leaf = kernel.with(LEAF, BPF_F_ALLOW_MULTI, &[deny_everything()])[0];
    kernel.with(POD, ALLOW_OVERRIDE, &[deny_everything()]);

    assert_eq!(
        allow(&kernel).unwrap(),
        levels([(LEAF, Rewritten { program_id: leaf }), (POD, NoProgram),])
    );
    assert!(allows_request(&kernel, 183));
}

#[test]
fn looks_again_when_a_program_is_swapped_meanwhile() {
    let kernel = FakeKernel {
        rivals: Cell::new(3),
        ..kernel()
    };
    kernel.with(LEAF, BPF_F_ALLOW_MULTI, &[deny_everything()]);

    let outcome = allow(&kernel).unwrap().remove(0).1;
    assert!(matches!(outcome, Rewritten { .. }), "{outcome:?}");
    assert!(allows_request(&kernel, 183));
}

#[test]
fn gives_up_on_programs_that_never_settle() {
    let kernel = FakeKernel {
        rivals: Cell::new(usize::MAX),
        ..kernel()
    };
    kernel.with(LEAF, BPF_F_ALLOW_MULTI, &[deny_everything()]);

    let error = allow(&kernel).unwrap_err();
    assert!(
        matches!(error, CgroupError::ConcurrentChanges { .. }),
        "{error}"
    );
}

#[test]
fn the_hidden_program_of_the_container_is_regenerated() {
    let kernel = FakeKernel {
        hides: true,
        ..kernel()
    };
    let leaf = kernel.with(LEAF, BPF_F_ALLOW_MULTI, &[deny_everything()]);
    let pod = kernel.with(POD, BPF_F_ALLOW_MULTI, &[allow_everything()]);

    assert_eq!(
        allow(&kernel).unwrap(),
        levels([
            (
                LEAF,
                Regenerated {
                    program_id: leaf[0]
                }
            ),
            (POD, UnreadableProgram { program_id: pod[0] }),
        ])
    );
    assert!(allows_request(&kernel, 183));
    assert_eq!(kernel.attached(POD), pod);
}

/// A node agent has attached a program of its own since the device was given.
#[test]
fn a_device_is_revoked_beside_a_hidden_program_of_another_component() {
    let kernel = FakeKernel {
        hides: true,
        ..kernel()
    };
    kernel.with(LEAF, BPF_F_ALLOW_MULTI, &[deny_everything()]);
    allow(&kernel).unwrap();
    assert!(allows_request(&kernel, 183));
    let foreign_id = kernel.add(&allow_everything());
    let mut cgroups = kernel.cgroups.borrow_mut();
    cgroups
        .get_mut(Path::new(LEAF))
        .unwrap()
        .ids
        .push(foreign_id);
    drop(cgroups);
    change(&kernel, &cgroup(ROOT, LEAF), &[misc(183, "rw")], &[]).unwrap();
    assert!(!allows_request(&kernel, 183));
    assert!(kernel.attached(LEAF).contains(&foreign_id));
}

/// A component other than the runtime may have attached the program. It is not known what the
/// program denies.
#[test]
fn a_program_that_may_be_another_components_is_left_alone() {
    let unknown = || vec![Instruction::Goto { offset: -1 }.encode()];
    for (hides, maps, programs) in [
        (true, 0, vec![deny_everything(), deny_everything()]),
        (true, 1, vec![deny_everything()]),
        (false, 0, vec![unknown()]),
        (false, 0, vec![deny_everything(), unknown()]),
    ] {
        let kernel = FakeKernel {
            hides,
            maps,
            ..FakeKernel::default()
        };
        let leaf = kernel.with(LEAF, BPF_F_ALLOW_MULTI, &programs);
        let error = allow(&kernel).unwrap_err().to_string();
        let foreign = if hides { leaf[0] } else { leaf[leaf.len() - 1] };
        let named = format!("device program {foreign} (\"program_{foreign}\") of cgroup {LEAF}");
        assert!(error.starts_with(&named), "{error}");
        assert!(kernel.attached(LEAF).contains(&foreign));
    }
}
