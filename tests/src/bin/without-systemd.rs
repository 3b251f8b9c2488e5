//! `without-systemd COMMAND [ARGUMENT...]`: runs a command in a mount namespace
//! of its own where the sockets of systemd and of the system bus are hidden, as
//! on a host that has neither. Nothing outside that namespace changes.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use harness::exit;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// The directories of systemd's private socket and of the bus's.
const HIDDEN: [&str; 2] = ["/run/systemd", "/run/dbus"];

fn main() -> ExitCode {
    exit::with("without-systemd", run())
}

fn run() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let program = arguments
        .next()
        .context("usage: without-systemd COMMAND [ARGUMENT...]")?;
    unshare(CloneFlags::CLONE_NEWNS).context("cannot leave the mount namespace")?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .context("cannot make the mounts private")?;
    for directory in HIDDEN {
        mount(
            Some("none"),
            directory,
            Some("tmpfs"),
            MsFlags::empty(),
            none,
        )
        .with_context(|| format!("cannot hide {directory}"))?;
    }
    let error = Command::new(&program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}
