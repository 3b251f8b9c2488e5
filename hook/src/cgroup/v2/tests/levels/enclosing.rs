//! Tests of cgroups above the container's that Boathook does not change or cannot see.

use super::*;

/// A container runs in another one. Either both runtimes use the cgroup driver cgroupfs, or the
/// outer container has a scope.
#[test]
fn a_program_of_an_enclosing_container_is_never_changed() {
    for (outer, inner) in [
        ("/cg/docker/outer", "/cg/docker/outer/docker/inner"),
        ("/cg/docker-1.scope", "/cg/docker-1.scope/inner/container"),
        ("/cg", "/cg/inner"),
    ] {
        let kernel = FakeKernel::default();
        kernel.with(inner, BPF_F_ALLOW_MULTI, &[deny_everything()]);
        kernel.with(
            outer,
            BPF_F_ALLOW_MULTI,
            &[allow_everything(), deny_everything()],
        );
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

        // If the outer container has the device, the inner one gets it.
        let kernel = FakeKernel::default();
        let program = kernel.with(inner, BPF_F_ALLOW_MULTI, &[deny_everything()])[0];
        let outer_programs = kernel.with(outer, BPF_F_ALLOW_MULTI, &[allow_everything()]);
        let levels = allow_in(&kernel, &cgroup(ROOT, inner)).unwrap();
        assert_eq!(
            levels[0],
            (
                inner.into(),
                Rewritten {
                    program_id: program
                }
            )
        );
        assert_eq!(kernel.attached(outer), outer_programs);
    }
}

#[test]
fn an_enclosing_program_that_cannot_be_read_is_reported() {
    let kernel = FakeKernel {
        hides: true,
        ..FakeKernel::default()
    };
    let leaf = kernel.with(LEAF, BPF_F_ALLOW_MULTI, &[deny_everything()])[0];
    let root = kernel.with(ROOT, BPF_F_ALLOW_MULTI, &[allow_everything()])[0];
    assert_eq!(
        allow(&kernel).unwrap(),
        levels([
            (ROOT, UnreadableProgram { program_id: root }),
            (LEAF, Regenerated { program_id: leaf }),
            (POD, NoProgram),
        ])
    );
}

#[test]
fn programs_above_the_mount_are_looked_at_but_out_of_reach() {
    let visible = cgroup(POD, LEAF);

    let kernel = kernel();
    kernel.with(LEAF, BPF_F_ALLOW_MULTI, &[deny_everything()]);
    kernel.with(ROOT, BPF_F_ALLOW_MULTI, &[allow_everything()]);
    assert_eq!(allow_in(&kernel, &visible).unwrap().len(), 1);
    assert!(allows_request(&kernel, 183));

    let kernel = FakeKernel::default();
    kernel.with(LEAF, BPF_F_ALLOW_MULTI, &[deny_everything()]);
    let root = kernel.with(ROOT, BPF_F_ALLOW_MULTI, &[deny_everything()])[0];
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
