//! `private-run COMMAND [ARGUMENT...]` runs a command with a private, empty /run. Tests use it for
//! programs that fail before they have read their log's path from the configuration, which would
//! log to the machine's /run/boathook.
//!
//! Without the right to mount, the command is run unchanged: it has then no right to write to /run
//! either.

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
        // The mode with which systemd mounts /run.
        let mode = Some("mode=755");
        mount(Some("tmpfs"), "/run", Some("tmpfs"), MsFlags::empty(), mode)
            .context("cannot mount a tmpfs on /run")?;
    }
    let command = std::env::args_os().skip(1);
    become_command(command, "usage: private-run COMMAND [ARGUMENT...]")
}
