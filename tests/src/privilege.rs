//! Finds out which tests this machine and this user cannot run.

use std::path::Path;
use std::process::Command;

use nix::unistd::geteuid;

use crate::captured::Captured;
use crate::cgroup_view::CgroupView;
use crate::rootfs::BUSYBOX;
use crate::{compile, runc};

/// `CAP_SYS_ADMIN` (linux/capability.h): mounts and namespaces.
const SYS_ADMIN: u32 = 21;
/// `CAP_MKNOD` (linux/capability.h): device nodes.
const MKNOD: u32 = 27;

/// Returns the reason why real containers cannot be run here with this view of cgroups, or `None`
/// if they can.
pub fn missing_for_runc(view: CgroupView) -> Option<String> {
    missing_for_root()
        .or_else(|| {
            runc::program()
                .is_none()
                .then(|| "needs runc (package runc)".to_string())
        })
        .or_else(missing_for_busybox)
        .or_else(|| view.missing())
}

/// Returns the reason why an engine cannot be run here, or `None` if it can.
pub fn missing_for_engines() -> Option<String> {
    missing_for_root().or_else(missing_for_busybox)
}

/// Returns the reason why programs for musl cannot be built here, or `None` if they can.
pub fn missing_for_musl() -> Option<String> {
    missing_file(Path::new(compile::MUSL_COMPILER), "musl-tools")
}

/// Returns the reason why containers with busybox cannot be run, or `None` if they can. A dynamic
/// busybox (package busybox) would lack its C library in a container.
fn missing_for_busybox() -> Option<String> {
    missing_file(Path::new(BUSYBOX), "busybox-static").or_else(|| {
        let libraries = Captured::run(Command::new("ldd").arg(BUSYBOX)).ok()?.stdout;
        libraries
            .contains("=>")
            .then(|| format!("needs a static {BUSYBOX} (package busybox-static)"))
    })
}

/// Returns the reason why mounts, namespaces and device nodes cannot be created here, or `None` if
/// they can.
pub fn missing_for_root() -> Option<String> {
    if !geteuid().is_root() {
        return Some("needs root".to_string());
    }
    let capabilities = effective_capabilities();
    [(SYS_ADMIN, "CAP_SYS_ADMIN"), (MKNOD, "CAP_MKNOD")]
        .into_iter()
        .find(|(bit, _)| capabilities & (1 << bit) == 0)
        .map(|(_, name)| format!("needs {name}"))
}

/// Returns the effective capabilities of this process (`CapEff` in /proc/self/status,
/// proc_pid_status(5)).
fn effective_capabilities() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

fn missing_file(path: &Path, package: &str) -> Option<String> {
    (!path.is_file()).then(|| format!("needs {} (package {package})", path.display()))
}
