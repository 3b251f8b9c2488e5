//! `private-run COMMAND [ARGUMENT...]`: runs a command that finds a /run of its own,
//! which is empty and ends with it. For programs that fail before they have read where
//! to log: they log to the machine's /run/boathook.
//!
//! Without the right to mount, the command has no right to write there either, and is
//! run as it is.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use harness::exit;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

fn main() -> ExitCode {
    exit::with("private-run", run())
}

fn run() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let program = arguments
        .next()
        .context("usage: private-run COMMAND [ARGUMENT...]")?;
    if unshare(CloneFlags::CLONE_NEWNS).is_ok() {
        let (none, private) = (None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE);
        mount(none, "/", none, private, none).context("cannot make the mounts private")?;
        // As systemd mounts it.
        let mode = Some("mode=755");
        mount(Some("tmpfs"), "/run", Some("tmpfs"), MsFlags::empty(), mode)
            .context("cannot mount a tmpfs on /run")?;
    }
    let error = Command::new(&program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}
