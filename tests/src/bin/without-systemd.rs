//! `without-systemd private|all COMMAND [ARGUMENT...]` runs a command in a private mount namespace
//! where systemd's private socket is hidden (`private`), or this socket and that of the system bus
//! (`all`), as on a host that has neither. The machine's mounts do not change.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use harness::exit;
use harness::surroundings::{become_command, leave_mount_namespace};
use nix::mount::{MsFlags, mount};

/// The directories of systemd's private socket and of the socket of the system bus.
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
    leave_mount_namespace()?;
    let (flags, none) = (MsFlags::empty(), None::<&str>);
    for directory in hidden {
        mount(Some("none"), *directory, Some("tmpfs"), flags, none)
            .with_context(|| format!("cannot hide {directory}"))?;
    }
    become_command(arguments, USAGE)
}
