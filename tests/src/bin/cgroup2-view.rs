//! `cgroup2-view COMMAND [ARGUMENT...]` runs a command in a private mount namespace where
//! /sys/fs/cgroup is a pure cgroup v2 tree, as on a machine without cgroup v1. The machine's mounts
//! do not change.
//!
//! If v1 has the machine's controllers, the v2 tree has none. Device programs do not need
//! controllers.

use std::process::ExitCode;

use anyhow::{Context, Result};
use harness::surroundings::{become_command, leave_mount_namespace};
use harness::{exit, mountinfo};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

const CGROUP_ROOT: &str = "/sys/fs/cgroup";

fn main() -> ExitCode {
    exit::with("cgroup2-view", run())
}

fn run() -> Result<()> {
    leave_mount_namespace()?;
    for mounted in mountinfo::of_self()?.iter().rev() {
        if mounted.mount_point.starts_with(CGROUP_ROOT) {
            umount2(&mounted.mount_point, MntFlags::empty())
                .with_context(|| format!("cannot unmount {}", mounted.mount_point.display()))?;
        }
    }
    let (flags, none) = (MsFlags::empty(), None::<&str>);
    mount(Some("none"), CGROUP_ROOT, Some("cgroup2"), flags, none)
        .with_context(|| format!("cannot mount cgroup2 on {CGROUP_ROOT}"))?;
    let command = std::env::args_os().skip(1);
    become_command(command, "usage: cgroup2-view COMMAND [ARGUMENT...]")
}
