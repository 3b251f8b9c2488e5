//! The programs as an installation has them: copied.
//!
//! A linker writes a file in many small pieces, which the kernel keeps in small parts of
//! memory; mapping such a program takes the hook 0.2 to 0.3 ms longer than mapping a copy
//! (docs/performance.md).

use std::process::Command;

use anyhow::{Context, Result, bail};
use harness::{binaries, scratch};

/// Whether this process uses copies already.
pub(crate) fn is_used() -> bool {
    std::env::var_os(binaries::PROGRAMS).is_some()
}

/// Starts this program again, with copies of the hook and the wrapper.
pub(crate) fn start_again() -> Result<()> {
    let copies = scratch::directory("installed")?;
    for name in binaries::FOR_MUSL {
        std::fs::copy(binaries::program(name)?, copies.path().join(name))
            .with_context(|| format!("cannot copy {name}"))?;
    }
    let mut bench = Command::new(std::env::current_exe()?);
    let status = bench
        .args(std::env::args_os().skip(1))
        .env(binaries::PROGRAMS, copies.path())
        .status()
        .context("cannot start the bench again")?;
    match status.success() {
        true => Ok(()),
        false => bail!("the bench failed ({status})"),
    }
}
