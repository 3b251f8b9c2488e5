//! Checks which kernel features exist, such as openat2(2), and whether this process may use them.

use std::path::Path;

use hook::cgroup::{DeviceCgroup, hides_new_programs};
use hook::mount::SyscallSupport;

use crate::command::finding::{Finding, Severity};

pub(super) fn check_kernel() -> Vec<Finding> {
    let mut findings = vec![check_privileges()];
    // Only root runs these checks. For other users they would fail with EPERM even if the kernel
    // has the system calls.
    if findings[0].severity == Severity::Ok {
        findings.extend(check_syscalls());
    }
    findings.push(check_cgroup());
    findings.push(check_cgroup_driver());
    findings.extend(check_jit_harden());
    findings
}

fn check_privileges() -> Finding {
    if nix::unistd::geteuid().is_root() {
        Finding::new(Severity::Ok, "privileges", "root")
    } else {
        let text = "not root: run this as root to see what the hook sees";
        Finding::new(Severity::Warning, "privileges", text)
    }
}

fn check_syscalls() -> Vec<Finding> {
    let SyscallSupport {
        openat2,
        open_tree,
        move_mount,
        mount_setattr,
        fsopen,
        statmount,
        has_private_namespace: _,
    } = SyscallSupport::probe();
    let calls = [
        ("openat2", openat2, "5.6"),
        ("open_tree", open_tree, "5.2"),
        ("move_mount", move_mount, "5.2"),
        ("mount_setattr", mount_setattr, "5.12"),
        ("fsopen", fsopen, "5.2"),
        ("statmount", statmount, "6.8"),
    ];
    let to_finding = |(name, is_usable, min_version)| {
        let subject = format!("kernel call {name}");
        if is_usable {
            Finding::new(Severity::Ok, subject, "usable")
        } else {
            let text = format!(
                "not available, using a slower fallback; it requires Linux {min_version} and no seccomp filter"
            );
            Finding::new(Severity::Warning, subject, text)
        }
    };
    calls.into_iter().map(to_finding).collect()
}

fn check_cgroup() -> Finding {
    let own_pid = i32::try_from(std::process::id()).unwrap_or_default();
    match DeviceCgroup::from_pid(own_pid) {
        Ok(Some(DeviceCgroup::V1(_))) => Finding::new(Severity::Ok, "cgroup", "v1, devices.allow"),
        Ok(Some(DeviceCgroup::V2(_))) => Finding::new(Severity::Ok, "cgroup", "v2, BPF programs"),
        Ok(None) => {
            let text = "no device controller: no device rule can be set, and none is needed";
            Finding::new(Severity::Warning, "cgroup", text)
        }
        Err(error) => Finding::new(
            Severity::Error,
            "cgroup",
            hook::log::format_error_chain(&error),
        ),
    }
}

fn check_cgroup_driver() -> Finding {
    // /run/systemd/system exists only if systemd is the init system (sd_booted(3)).
    let text = if Path::new("/run/systemd/system").is_dir() {
        "systemd is running; engines may use its cgroup driver or cgroupfs"
    } else {
        "systemd is not running, so engines use cgroupfs"
    };
    Finding::new(Severity::Ok, "cgroup driver", text)
}

fn check_jit_harden() -> Option<Finding> {
    hides_new_programs().then(|| {
        let text = "2: device programs cannot be read back and are regenerated from the \
                    container's spec; set 1 to have them kept as they are";
        Finding::new(Severity::Warning, "net.core.bpf_jit_harden", text)
    })
}
