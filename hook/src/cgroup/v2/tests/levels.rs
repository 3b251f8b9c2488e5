//! Which programs are replaced, how, and what is logged about it.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::fake_kernel::{Change, FakeKernel};
use super::runtime_programs::{allow_everything, deny_everything};
use crate::cgroup::CgroupDir;
use crate::cgroup::error::CgroupError;
use crate::cgroup::report::Outcome::{self, *};
use crate::cgroup::spec_rules::SpecRules;
use crate::cgroup::v2::request::Request;
use crate::cgroup::v2::{Required, allow_on};
use crate::sys::bpf::{ALLOW_MULTI, MAX_PROGRAMS};

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

fn request(minor: u32) -> Request {
    Request::covered_by(crate::cgroup::rule::misc(minor, "r"))
        .last()
        .unwrap()
}

/// Requests `c 10:183 rw` in a container at [`LEAF`].
fn allow(kernel: &FakeKernel) -> Result<Vec<(PathBuf, Outcome)>, CgroupError> {
    allow_in(kernel, &cgroup(ROOT, LEAF))
}

fn allow_in(
    kernel: &FakeKernel,
    cgroup: &CgroupDir,
) -> Result<Vec<(PathBuf, Outcome)>, CgroupError> {
    let required = Required {
        rules: &[crate::cgroup::rule::misc(183, "rw")],
        spec: &SpecRules::of_container(&[]),
    };
    let levels = allow_on(kernel, cgroup, required)?;
    Ok(levels
        .into_iter()
        .map(|level| (level.cgroup, level.outcome))
        .collect())
}

fn levels<const N: usize>(levels: [(&str, Outcome); N]) -> Vec<(PathBuf, Outcome)> {
    let levels = levels.into_iter();
    levels.map(|(dir, outcome)| (dir.into(), outcome)).collect()
}

/// A kernel that must deny `c 10:184` to the container at every moment.
fn kernel() -> FakeKernel {
    let kernel = FakeKernel::default();
    let denied = (LEAF.into(), request(184));
    kernel.always_denied.borrow_mut().push(denied);
    kernel
}

fn admits(kernel: &FakeKernel, minor: u32) -> bool {
    kernel.admits(Path::new(LEAF), &request(minor))
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
    let leaf = kernel.with(LEAF, ALLOW_MULTI, &[deny_everything()]);
    kernel.with(POD, ALLOW_MULTI, &[allow_everything()]);
    kernel.with(ROOT, ALLOW_MULTI, &[allow_everything()]);

    assert_eq!(
        allow(&kernel).unwrap(),
        levels([
            (LEAF, Rewritten { program: leaf[0] }),
            (POD, AlreadyAllowed),
        ])
    );
    let new = kernel.attached(LEAF)[0];
    assert_eq!(
        *kernel.changes.borrow(),
        [Change::Replace { old: leaf[0], new }]
    );
    assert!(admits(&kernel, 183));
}

#[test]
fn a_second_call_changes_nothing() {
    let kernel = kernel();
    kernel.with(LEAF, ALLOW_MULTI, &[deny_everything()]);
    allow(&kernel).unwrap();
    let changes = kernel.changes.borrow().len();

    assert_eq!(allow(&kernel).unwrap()[0].1, AlreadyAllowed);
    assert_eq!(kernel.changes.borrow().len(), changes);
}

#[test]
fn every_program_of_the_container_and_its_slice_that_denies_is_replaced() {
    let kernel = kernel();
    let deny = deny_everything;
    let leaf = kernel.with(LEAF, ALLOW_MULTI, &[deny(), allow_everything(), deny()]);
    let pod = kernel.with(POD, ALLOW_MULTI, &[deny()]);

    assert_eq!(
        allow(&kernel).unwrap(),
        levels([
            (LEAF, Rewritten { program: leaf[0] }),
            (LEAF, Rewritten { program: leaf[2] }),
            (POD, Rewritten { program: pod[0] }),
        ])
    );
    assert!(admits(&kernel, 183));
    assert_eq!(kernel.attached(LEAF)[1], leaf[1]);
}

#[test]
fn without_replace_the_new_program_comes_before_the_old_one_goes() {
    let kernel = FakeKernel {
        cannot_replace: true,
        ..kernel()
    };
    let old = kernel.with(LEAF, ALLOW_MULTI, &[deny_everything()])[0];

    assert_eq!(allow(&kernel).unwrap()[0].1, Rewritten { program: old });
    assert_eq!(
        *kernel.changes.borrow(),
        [
            Change::Attach {
                program: kernel.attached(LEAF)[0],
                flags: ALLOW_MULTI
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
    let old = kernel.with(LEAF, ALLOW_MULTI, &[deny_everything()])[0];

    let error = allow(&kernel).unwrap_err().to_string();
    assert_eq!(
        error,
        format!("cannot replace device program {old} of cgroup {LEAF}")
    );
    assert!(!admits(&kernel, 183));
}

#[test]
fn single_programs_keep_their_flags() {
    for flags in [0, ALLOW_OVERRIDE] {
        let kernel = kernel();
        let old = kernel.with(LEAF, flags, &[deny_everything()])[0];

        assert_eq!(allow(&kernel).unwrap()[0].1, Rewritten { program: old });
        let program = kernel.attached(LEAF)[0];
        assert_eq!(
            *kernel.changes.borrow(),
            [Change::Attach { program, flags }]
        );
        assert!(admits(&kernel, 183));
    }
}

#[test]
fn overridden_programs_have_no_say() {
    let kernel = kernel();
    let leaf = kernel.with(LEAF, ALLOW_MULTI, &[deny_everything()])[0];
    kernel.with(POD, ALLOW_OVERRIDE, &[deny_everything()]);

    assert_eq!(
        allow(&kernel).unwrap(),
        levels([(LEAF, Rewritten { program: leaf }), (POD, NoProgram),])
    );
    assert!(admits(&kernel, 183));
}

#[test]
fn looks_again_when_a_program_is_swapped_meanwhile() {
    let kernel = FakeKernel {
        rivals: Cell::new(3),
        ..kernel()
    };
    kernel.with(LEAF, ALLOW_MULTI, &[deny_everything()]);

    let outcome = allow(&kernel).unwrap().remove(0).1;
    assert!(matches!(outcome, Rewritten { .. }), "{outcome:?}");
    assert!(admits(&kernel, 183));
}

#[test]
fn gives_up_on_programs_that_never_settle() {
    let kernel = FakeKernel {
        rivals: Cell::new(usize::MAX),
        ..kernel()
    };
    kernel.with(LEAF, ALLOW_MULTI, &[deny_everything()]);

    let error = allow(&kernel).unwrap_err();
    assert!(matches!(error, CgroupError::Unsettled { .. }), "{error}");
}

#[test]
fn a_full_cgroup_is_an_error_with_that_reason() {
    let kernel = kernel();
    let mut programs = vec![allow_everything(); MAX_PROGRAMS - 1];
    programs.push(deny_everything());
    kernel.with(LEAF, ALLOW_MULTI, &programs);

    let error = allow(&kernel).unwrap_err().to_string();
    assert!(error.contains("has 64 programs"), "{error}");
}

#[test]
fn hidden_programs_of_the_container_are_regenerated() {
    let kernel = FakeKernel {
        hides: true,
        ..kernel()
    };
    let leaf = kernel.with(LEAF, ALLOW_MULTI, &[deny_everything(), deny_everything()]);
    let pod = kernel.with(POD, ALLOW_MULTI, &[allow_everything()]);

    assert_eq!(
        allow(&kernel).unwrap(),
        levels([
            (LEAF, Regenerated { program: leaf[0] }),
            (LEAF, Regenerated { program: leaf[1] }),
            (POD, Unreadable { program: pod[0] }),
        ])
    );
    assert!(admits(&kernel, 183));
    assert_eq!(kernel.attached(POD), pod);
}

/// A container in a container, whose runtimes use the cgroup driver cgroupfs, or
/// whose outer one has a scope.
#[test]
fn a_program_of_an_enclosing_container_is_never_changed() {
    for (outer, inner) in [
        ("/cg/docker/outer", "/cg/docker/outer/docker/inner"),
        ("/cg/docker-1.scope", "/cg/docker-1.scope/inner/container"),
        ("/cg", "/cg/inner"),
    ] {
        let kernel = FakeKernel::default();
        kernel.with(inner, ALLOW_MULTI, &[deny_everything()]);
        kernel.with(outer, ALLOW_MULTI, &[allow_everything(), deny_everything()]);
        let error = allow_in(&kernel, &cgroup(ROOT, inner)).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "device c 10:183 rw is not allowed in cgroup {outer}, which encloses the \
                 container's cgroup {inner}; allow it there first: give it to the enclosing \
                 container, or set DeviceAllow= on the systemd unit"
            )
        );
        assert_eq!(*kernel.changes.borrow(), []);

        // Where the outer container has the device, the inner one gets it.
        let kernel = FakeKernel::default();
        let program = kernel.with(inner, ALLOW_MULTI, &[deny_everything()])[0];
        let outer_programs = kernel.with(outer, ALLOW_MULTI, &[allow_everything()]);
        let levels = allow_in(&kernel, &cgroup(ROOT, inner)).unwrap();
        assert_eq!(levels[0], (inner.into(), Rewritten { program }));
        assert_eq!(kernel.attached(outer), outer_programs);
    }
}

#[test]
fn an_enclosing_program_that_cannot_be_read_is_reported() {
    let kernel = FakeKernel {
        hides: true,
        ..FakeKernel::default()
    };
    let leaf = kernel.with(LEAF, ALLOW_MULTI, &[deny_everything()])[0];
    let root = kernel.with(ROOT, ALLOW_MULTI, &[allow_everything()])[0];
    assert_eq!(
        allow(&kernel).unwrap(),
        levels([
            (ROOT, Unreadable { program: root }),
            (LEAF, Regenerated { program: leaf }),
            (POD, NoProgram),
        ])
    );
}

#[test]
fn missing_privileges_are_reported_and_nothing_is_changed() {
    for kernel in kernels_that_refuse(false) {
        let levels = allow(&kernel).unwrap();
        assert!(
            matches!(levels[..], [(_, NoPermission { .. })]),
            "{levels:?}"
        );
        assert_eq!(*kernel.changes.borrow(), []);
    }
}

/// Otherwise the container would start with devices that it cannot open.
#[test]
fn with_privileges_a_refusal_is_an_error() {
    for kernel in kernels_that_refuse(true) {
        let denied = allow(&kernel).unwrap_err();
        assert!(
            matches!(
                denied,
                CgroupError::ReadPrograms { .. } | CgroupError::Load { .. }
            ),
            "{denied}"
        );
        assert_eq!(*kernel.changes.borrow(), []);
    }
}

/// Kernels that answer a call with EPERM.
fn kernels_that_refuse(is_privileged: bool) -> [FakeKernel; 3] {
    let kernel = || FakeKernel {
        is_privileged,
        ..kernel()
    };
    let denied = Some(Errno::EPERM);
    let kernels = [
        FakeKernel {
            query_fails: denied,
            ..kernel()
        },
        FakeKernel {
            open_fails: denied,
            ..kernel()
        },
        FakeKernel {
            load_fails: Cell::new(Some((usize::MAX, Errno::EPERM))),
            ..kernel()
        },
    ];
    for kernel in &kernels {
        kernel.with(LEAF, ALLOW_MULTI, &[deny_everything()]);
        kernel.with(POD, ALLOW_MULTI, &[deny_everything()]);
    }
    kernels
}

#[test]
fn a_rewrite_that_does_not_load_is_regenerated_for_the_container() {
    let refused = Some((2, Errno::EINVAL));
    let kernel = kernel();
    let leaf = kernel.with(LEAF, ALLOW_MULTI, &[deny_everything()]);
    kernel.load_fails.set(refused);
    assert_eq!(
        allow(&kernel).unwrap()[0].1,
        Regenerated { program: leaf[0] }
    );

    let kernel = FakeKernel::default();
    kernel.with(POD, ALLOW_MULTI, &[deny_everything()]);
    kernel.load_fails.set(refused);
    let error = allow(&kernel).unwrap_err().to_string();
    assert_eq!(
        error,
        "the kernel refuses the new device program for cgroup /cg/pod.slice (15 instructions): \
         unknown opcode 9c"
    );
}

#[test]
fn programs_above_the_mount_are_looked_at_but_out_of_reach() {
    let visible = cgroup(POD, LEAF);

    let kernel = kernel();
    kernel.with(LEAF, ALLOW_MULTI, &[deny_everything()]);
    kernel.with(ROOT, ALLOW_MULTI, &[allow_everything()]);
    assert_eq!(allow_in(&kernel, &visible).unwrap().len(), 1);
    assert!(admits(&kernel, 183));

    let kernel = FakeKernel::default();
    kernel.with(LEAF, ALLOW_MULTI, &[deny_everything()]);
    let root = kernel.with(ROOT, ALLOW_MULTI, &[deny_everything()])[0];
    let error = allow_in(&kernel, &visible).unwrap_err().to_string();
    assert_eq!(
        error,
        format!(
            "device program {root}, attached above /cg/pod.slice, denies c 10:183 rw: \
             run the hook in the host's mount and cgroup namespaces"
        )
    );
    assert_eq!(*kernel.changes.borrow(), []);
}
