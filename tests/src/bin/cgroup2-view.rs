//! `cgroup2-view COMMAND [ARGUMENT...]`: runs a command in a mount namespace of
//! its own where /sys/fs/cgroup is a pure cgroup v2 tree, as on a machine
//! without v1. Nothing outside that namespace changes.
//!
//! The unified tree has no controllers if v1 holds them, but device programs
//! need none.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use harness::{exit, mountinfo};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

const CGROUP_ROOT: &str = "/sys/fs/cgroup";

fn main() -> ExitCode {
    exit::with("cgroup2-view", run())
}

fn run() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let program = arguments
        .next()
        .context("usage: cgroup2-view COMMAND [ARGUMENT...]")?;
    enter_view()?;
    let error = Command::new(&program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}

fn enter_view() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).context("cannot leave the mount namespace")?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .context("cannot make the mounts private")?;
    for mounted in mountinfo::of_self()?.iter().rev() {
        if mounted.mount_point.starts_with(CGROUP_ROOT) {
            umount2(&mounted.mount_point, MntFlags::empty())
                .with_context(|| format!("cannot unmount {}", mounted.mount_point.display()))?;
        }
    }
    mount(
        Some("none"),
        Path::new(CGROUP_ROOT),
        Some("cgroup2"),
        MsFlags::empty(),
        none,
    )
    .with_context(|| format!("cannot mount cgroup2 on {CGROUP_ROOT}"))
}
