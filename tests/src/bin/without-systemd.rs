//! `without-systemd WHAT COMMAND [ARGUMENT...]`: runs a command in a mount
//! namespace of its own where systemd's own socket is hidden (`private`), or that
//! of the system bus as well (`all`), as on a host that has neither. Nothing
//! outside that namespace changes.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use harness::exit;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// The directories of systemd's private socket and of the bus's.
const SOCKETS: [&str; 2] = ["/run/systemd", "/run/dbus"];
const USAGE: &str = "usage: without-systemd private|all COMMAND [ARGUMENT...]";

fn main() -> ExitCode {
    exit::with("without-systemd", run())
}

fn run() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let hidden = match arguments.next().context(USAGE)?.to_str() {
        Some("private") => &SOCKETS[..1],
        Some("all") => &SOCKETS[..],
        _ => bail!(USAGE),
    };
    let program = arguments.next().context(USAGE)?;
    unshare(CloneFlags::CLONE_NEWNS).context("cannot leave the mount namespace")?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .context("cannot make the mounts private")?;
    for directory in hidden {
        mount(
            Some("none"),
            *directory,
            Some("tmpfs"),
            MsFlags::empty(),
            none,
        )
        .with_context(|| format!("cannot hide {directory}"))?;
    }
    let error = Command::new(&program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}
