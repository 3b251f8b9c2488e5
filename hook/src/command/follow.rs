//! `boathook follow`.

use std::io::{self, Write};
use std::num::NonZeroU32;

use device_class::config::Config;

use super::CommandError;
use crate::exit::ExitCode;
use crate::live::Follower;
use crate::sys::uevent::Uevents;

/// Follows devices for as long as it runs: it sleeps until the kernel or udev says that
/// something has changed. A container that could not be changed is left alone for `pause` seconds.
pub(super) fn run(pause: NonZeroU32, config: &Config) -> Result<ExitCode, CommandError> {
    let failed = |errno| CommandError::Uevents(errno);
    let events = Uevents::open().map_err(failed)?;
    crate::process::confine_opened()?;
    let mut follower = Follower::new(pause, config);
    let mut longest = follower.look();
    // For who starts it and waits.
    writeln!(io::stdout().lock(), "following devices")?;
    loop {
        events.wait(longest).map_err(failed)?;
        longest = follower.look();
    }
}
