//! Tests with a kernel that hides programs (`net.core.bpf_jit_harden=2`).

use super::*;
use crate::cgroup::v2::has_hidden_program_with_kernel;

#[test]
fn only_the_containers_own_programs_are_made_again() {
    for (hides, dir, expected) in [
        (true, LEAF, true),
        (true, POD, false),
        (true, ROOT, false),
        (false, LEAF, false),
    ] {
        let kernel = FakeKernel {
            hides,
            ..FakeKernel::default()
        };
        kernel.with(dir, BPF_F_ALLOW_MULTI, &[deny_everything()]);
        let found = has_hidden_program_with_kernel(&kernel, &cgroup(ROOT, LEAF)).unwrap();
        assert_eq!(found, expected, "{hides} {dir}");
    }
}

/// Without privileges, a process can neither read nor change the programs of another process's
/// cgroup.
#[test]
fn without_privileges_nothing_counts_as_hidden() {
    let kernel = FakeKernel {
        hides: true,
        open_fails: Some(Errno::EPERM),
        ..FakeKernel::default()
    };
    kernel.with(LEAF, BPF_F_ALLOW_MULTI, &[deny_everything()]);
    assert!(!has_hidden_program_with_kernel(&kernel, &cgroup(ROOT, LEAF)).unwrap());
    let kernel = FakeKernel {
        is_privileged: true,
        ..kernel
    };
    assert!(has_hidden_program_with_kernel(&kernel, &cgroup(ROOT, LEAF)).is_err());
}

/// Attaches a device next to 184, which the hook gave, and 182 of the specification. Then
/// detaches it, and exchanges it for another device.
#[test]
fn what_is_known_stays_however_often_a_program_is_made_again() {
    let kernel = FakeKernel {
        hides: true,
        ..FakeKernel::default()
    };
    let spec = SpecRules::from_spec(&[(&misc(182, "rw")).into()]);
    let known = spec.with_allowed_rules(&[misc(184, "rw")]);
    kernel.with(
        LEAF,
        BPF_F_ALLOW_MULTI,
        &[assembler::generate_program(&known)],
    );
    let cgroup = cgroup(ROOT, LEAF);
    for (withdrawn, rules, allowed) in [
        (&[][..], &[misc(183, "rw")][..], Some(183)),
        (&[misc(183, "rw")], &[], None),
        (&[misc(183, "rw")], &[misc(185, "rw")], Some(185)),
    ] {
        let required = RequiredChange {
            rules,
            revoked_rules: withdrawn,
            spec_rules: &known,
        };
        change_programs_with_kernel(&kernel, &cgroup, required).unwrap();
        for minor in 182..=185 {
            let expected = minor == 182 || minor == 184 || allowed == Some(minor);
            assert_eq!(
                allows_request(&kernel, minor),
                expected,
                "{minor} {rules:?}"
            );
        }
    }
}
