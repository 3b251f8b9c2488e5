//! Functions for programs that run a command in other namespaces.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// Moves the calling thread into a private copy of its mount namespace. Later mounts of this
/// thread, and of the processes that it starts, exist only there, and it sees no later mounts
/// of others.
pub fn leave_mount_namespace() -> Result<()> {
    let (none, private) = (None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE);
    unshare(CloneFlags::CLONE_NEWNS).context("cannot leave the mount namespace")?;
    mount(none, "/", none, private, none).context("cannot make the mounts private")
}

/// Replaces this process by the command.
pub fn become_command(
    mut command: impl Iterator<Item = OsString>,
    usage: &'static str,
) -> Result<()> {
    let program = command.next().context(usage)?;
    let error = Command::new(&program).args(command).exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}
