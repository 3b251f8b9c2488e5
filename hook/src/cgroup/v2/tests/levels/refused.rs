//! Tests with a kernel that refuses a call or a program.

use super::*;

#[test]
fn a_full_cgroup_is_an_error_with_that_reason() {
    let kernel = kernel();
    let mut programs = vec![allow_everything(); MAX_ATTACHED_PROGRAMS - 1];
    programs.push(deny_everything());
    kernel.with(LEAF, BPF_F_ALLOW_MULTI, &programs);

    let error = allow(&kernel).unwrap_err().to_string();
    assert!(error.contains("has 64 programs"), "{error}");
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

/// If this were not an error, the container would start with devices that it cannot open.
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

/// Returns kernels that answer a call with EPERM.
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
        kernel.with(LEAF, BPF_F_ALLOW_MULTI, &[deny_everything()]);
        kernel.with(POD, BPF_F_ALLOW_MULTI, &[deny_everything()]);
    }
    kernels
}

#[test]
fn a_rewrite_that_does_not_load_is_an_error() {
    for dir in [LEAF, POD] {
        let kernel = FakeKernel::default();
        let old = kernel.with(dir, BPF_F_ALLOW_MULTI, &[deny_everything()]);
        kernel.load_fails.set(Some((2, Errno::EINVAL)));
        let error = allow(&kernel).unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "the kernel refuses the new device program for cgroup {dir} (15 instructions): \
                 unknown opcode 9c"
            )
        );
        assert_eq!(kernel.attached(dir), old);
    }
}
