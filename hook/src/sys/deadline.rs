//! Limits the time of this process's work. Two timers end the process if the work takes too long.
//!
//! The first timer sends SIGALRM. The handler of this signal reports the current stage of the work,
//! and exits. But a signal handler does not run while a system call waits for a driver or a FUSE
//! server that does not answer. So a second timer sends SIGKILL one second later.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{
    SaFlags, SigAction, SigEvent, SigHandler, SigSet, SigevNotify, SigmaskHow, Signal, sigaction,
    sigprocmask,
};
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;
use nix::unistd::alarm;

use crate::exit::ExitCode;

/// The time limit of the hook in seconds. It is also the limit of `boathook-runtime`, until that
/// executes the real runtime. The programs that a class file names in `[prepare]` have a limit of
/// their own, so their time does not count.
///
/// The work normally takes milliseconds. Steps that can take longer have shorter limits, such as
/// two seconds for systemd. The kubelet waits two minutes for the start of a container.
pub const DEADLINE_SECONDS: u32 = 10;

/// The time that a parent process gives to a child process which has set itself a deadline of
/// [`DEADLINE_SECONDS`]. By then, the SIGKILL of that deadline has ended the child process, unless
/// it is in an uninterruptible sleep.
pub const CHILD_TIMEOUT: Duration = Duration::from_secs(DEADLINE_SECONDS as u64 + 2);

/// The stages of a container's start. If the deadline is exceeded, the report names the current
/// stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Reading,
    Planning,
    OpeningSources,
    SettingRules,
    MountingFiles,
}

/// The descriptions of the stages for the report of an exceeded deadline, in the order of
/// [`Stage`].
const STAGE_DESCRIPTIONS: [&str; 5] = [
    "reading the container's state and configuration",
    "looking up the container's devices",
    "opening the devices and files of the host",
    "setting device rules",
    "mounting in the container",
];

static CURRENT_STAGE: AtomicU8 = AtomicU8::new(Stage::Reading as u8);
/// The beginning of the report of an exceeded deadline. It names the container: `container 0123: `,
/// for example. The string is never freed, so that the signal handler can read it at any time.
static REPORT_PREFIX: AtomicPtr<String> = AtomicPtr::new(null_mut());
/// The descriptor of the log file to which the report is written in addition to stderr. -1 means
/// that there is no log file.
static REPORT_FD: AtomicI32 = AtomicI32::new(-1);

impl Stage {
    /// Makes this the current stage. The report of an exceeded deadline names it.
    pub fn begin(self) {
        CURRENT_STAGE.store(self as u8, Ordering::Relaxed);
    }
}

/// Sets the container id for the report of an exceeded deadline. The id must not contain control
/// characters, because the signal handler that writes the report does not escape them.
pub(crate) fn set_container_id(id: &str) {
    let prefix = format!("container {id}: ");
    REPORT_PREFIX.store(Box::into_raw(Box::new(prefix)), Ordering::Release);
}

/// Sets a log file for the report of an exceeded deadline. The report is written to this file and
/// to stderr. The file must stay open until this process ends.
pub(crate) fn set_report_file(file: &File) {
    REPORT_FD.store(file.as_raw_fd(), Ordering::Relaxed);
}

/// A time limit of this process. When the value is dropped, the limit ends.
pub struct Deadline {
    previous_mask: SigSet,
    previous_action: SigAction,
    kill_timer: Timer,
}

/// The time between SIGALRM and SIGKILL. The handler of SIGALRM writes the report.
const KILL_DELAY: Duration = Duration::from_secs(1);

impl Deadline {
    /// Starts a deadline: this process gets SIGALRM after `seconds` seconds, and SIGKILL one second
    /// later.
    pub fn start(seconds: u32) -> Result<Self, Errno> {
        let handler = SigHandler::Handler(report_and_exit);
        let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
        // SAFETY: `report_and_exit` calls only functions that are async-signal-safe
        // (signal-safety(7)), and changes no state.
        let previous_action = unsafe { sigaction(Signal::SIGALRM, &action) }?;
        // A process inherits its signal mask from its parent, which may have blocked SIGALRM.
        let mut previous_mask = SigSet::empty();
        let mut alarm_signal = SigSet::empty();
        alarm_signal.add(Signal::SIGALRM);
        sigprocmask(
            SigmaskHow::SIG_UNBLOCK,
            Some(&alarm_signal),
            Some(&mut previous_mask),
        )?;
        let event = SigEvent::new(SigevNotify::SigevSignal {
            signal: Signal::SIGKILL,
            si_value: 0,
        });
        let mut deadline = Deadline {
            previous_mask,
            previous_action,
            kill_timer: Timer::new(ClockId::CLOCK_MONOTONIC, event)?,
        };
        deadline.expire_in(seconds)?;
        Ok(deadline)
    }

    fn expire_in(&mut self, seconds: u32) -> Result<(), Errno> {
        alarm::set(seconds);
        let kill_time = Duration::from_secs(seconds.into()) + KILL_DELAY;
        self.kill_timer.set(
            Expiration::OneShot(kill_time.into()),
            TimerSetTimeFlags::empty(),
        )
    }

    /// Calls `work` and returns its result. The time of this call does not count for the deadline,
    /// because `work` runs programs that have a limit of their own.
    pub(crate) fn pause<T>(&mut self, work: impl FnOnce() -> T) -> Result<T, Errno> {
        let remaining_seconds = alarm::cancel();
        let no_expiration = Expiration::OneShot(Duration::ZERO.into());
        self.kill_timer
            .set(no_expiration, TimerSetTimeFlags::empty())?;
        let result = work();
        remaining_seconds.map_or(Ok(()), |seconds| self.expire_in(seconds))?;
        Ok(result)
    }

    /// Cancels the deadline by dropping it.
    pub fn cancel(self) {}
}

impl Drop for Deadline {
    /// Cancels the deadline. Restores the signal mask and the action of SIGALRM, because a program
    /// that this process executes next inherits them.
    fn drop(&mut self) {
        alarm::cancel();
        // SAFETY: the action that is restored is the one that the process had before.
        let _ = unsafe { sigaction(Signal::SIGALRM, &self.previous_action) };
        let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.previous_mask), None);
    }
}

/// Handles SIGALRM: writes the report and exits. A signal handler may only call functions that are
/// async-signal-safe (signal-safety(7)). So this one calls only write(2) and _exit(2).
extern "C" fn report_and_exit(_signal: libc::c_int) {
    let prefix = REPORT_PREFIX.load(Ordering::Acquire);
    // SAFETY: the pointer is null, or points to a string that was leaked and is never changed.
    let prefix = unsafe { prefix.as_ref() }.map_or("", String::as_str);
    let stage = STAGE_DESCRIPTIONS.get(usize::from(CURRENT_STAGE.load(Ordering::Relaxed)));
    let report_parts = [
        "boathook: ",
        prefix,
        "deadline exceeded while ",
        stage.unwrap_or(&""),
        "\n",
    ];
    let mut line = [0_u8; 512];
    let mut length = 0;
    for byte in report_parts.iter().flat_map(|part| part.bytes()) {
        if let Some(character) = line.get_mut(length) {
            *character = byte;
            length += 1;
        }
    }
    for descriptor in [libc::STDERR_FILENO, REPORT_FD.load(Ordering::Relaxed)] {
        // SAFETY: the buffer has at least `length` bytes.
        unsafe {
            libc::write(descriptor, line.as_ptr().cast(), length);
        }
    }
    // SAFETY: `_exit` does not return, and runs no code of this process.
    unsafe { libc::_exit(ExitCode::Deadline as libc::c_int) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_ends_with_its_value() {
        drop(Deadline::start(60).unwrap());
        assert_eq!(alarm::cancel(), None);
    }
}
