//! `private-run COMMAND [ARGUMENT...]`: runs a command that finds a /run of its own,
//! which is empty and ends with it. For programs that fail before they have read where
//! to log: they log to the machine's /run/boathook.
//!
//! Without the right to mount, the command has no right to write there either, and is
//! run as it is.

use std::process::ExitCode;

use anyhow::{Context, Result};
use harness::exit;
use harness::surroundings::{become_command, leave_mount_namespace};
use nix::mount::{MsFlags, mount};

fn main() -> ExitCode {
    exit::with("private-run", run())
}

fn run() -> Result<()> {
    if leave_mount_namespace().is_ok() {
        // As systemd mounts it.
        let mode = Some("mode=755");
        mount(Some("tmpfs"), "/run", Some("tmpfs"), MsFlags::empty(), mode)
            .context("cannot mount a tmpfs on /run")?;
    }
    let command = std::env::args_os().skip(1);
    become_command(command, "usage: private-run COMMAND [ARGUMENT...]")
}
