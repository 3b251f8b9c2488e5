//! Ends this process when its work takes too long.
//!
//! A timer sends SIGALRM, whose handler reports the current stage of the work and exits. A signal
//! handler does not run while a system call waits for a driver or a FUSE server that does not
//! answer. Therefore a second timer sends SIGKILL one second later.

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

/// The time limit in seconds of the hook, and of `boathook-runtime` until it executes the real
/// runtime. The programs of `[prepare]` have their own limit, and their time does not count.
///
/// The work normally takes milliseconds. Steps that can take longer have shorter limits of their
/// own, such as two seconds for systemd. The kubelet waits two minutes for the start of a
/// container.
pub(crate) const SECONDS: u32 = 10;

/// The time after which a process whose deadline is [`SECONDS`] has ended, unless SIGKILL cannot
/// end it.
pub(crate) const LIMIT: Duration = Duration::from_secs(SECONDS as u64 + 2);

/// The stage of the work that the report of an exceeded deadline names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Reading,
    Planning,
    Sources,
    Rules,
    Container,
}

const STAGES: [&str; 5] = [
    "reading the container's state and configuration",
    "looking up the container's devices",
    "opening the devices and files of the host",
    "setting device rules",
    "mounting in the container",
];

static STAGE: AtomicU8 = AtomicU8::new(Stage::Reading as u8);
/// The name of the container in the report, followed by `: `. Its memory is never freed, so that
/// the signal handler can read it at any time.
static SUBJECT: AtomicPtr<String> = AtomicPtr::new(null_mut());
/// The descriptor of the log to which the report is written in addition to stderr, or -1.
static LOG: AtomicI32 = AtomicI32::new(-1);

impl Stage {
    pub(crate) fn begin(self) {
        STAGE.store(self as u8, Ordering::Relaxed);
    }
}

/// Sets the container id that the report of an exceeded deadline names. The id must not contain
/// control characters.
pub(crate) fn set_container(id: &str) {
    let subject = format!("container {id}: ");
    SUBJECT.store(Box::into_raw(Box::new(subject)), Ordering::Release);
}

/// Lets the report of an exceeded deadline also be written to `file`, which must stay open until
/// this process ends.
pub(crate) fn also_report_to(file: &File) {
    LOG.store(file.as_raw_fd(), Ordering::Relaxed);
}

/// A time limit of this process, which ends when the value is dropped.
pub(crate) struct Deadline {
    mask: SigSet,
    action: SigAction,
    kill: Timer,
}

/// The time from SIGALRM, which can be handled, to SIGKILL, which cannot.
const KILL_DELAY: Duration = Duration::from_secs(1);

impl Deadline {
    /// Starts a deadline that ends this process after `seconds` seconds.
    pub(crate) fn start(seconds: u32) -> Result<Self, Errno> {
        let handler = SigHandler::Handler(report_and_exit);
        let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
        // SAFETY: `report_and_exit` calls only functions that are async-signal-safe
        // (signal-safety(7)), and changes no state.
        let action = unsafe { sigaction(Signal::SIGALRM, &action) }?;
        // A process inherits the signal mask of its parent, which may have blocked SIGALRM.
        let mut mask = SigSet::empty();
        let mut unblocked = SigSet::empty();
        unblocked.add(Signal::SIGALRM);
        sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&unblocked), Some(&mut mask))?;
        let event = SigEvent::new(SigevNotify::SigevSignal {
            signal: Signal::SIGKILL,
            si_value: 0,
        });
        let mut deadline = Deadline {
            mask,
            action,
            kill: Timer::new(ClockId::CLOCK_MONOTONIC, event)?,
        };
        deadline.expire_in(seconds)?;
        Ok(deadline)
    }

    fn expire_in(&mut self, seconds: u32) -> Result<(), Errno> {
        alarm::set(seconds);
        let end = Duration::from_secs(seconds.into()) + KILL_DELAY;
        self.kill
            .set(Expiration::OneShot(end.into()), TimerSetTimeFlags::empty())
    }

    /// Calls `work` while the deadline does not count, and returns the result of `work`.
    pub(crate) fn pause<T>(&mut self, work: impl FnOnce() -> T) -> Result<T, Errno> {
        let seconds_left = alarm::cancel();
        let never = Expiration::OneShot(Duration::ZERO.into());
        self.kill.set(never, TimerSetTimeFlags::empty())?;
        let result = work();
        seconds_left.map_or(Ok(()), |seconds| self.expire_in(seconds))?;
        Ok(result)
    }

    /// Cancels the deadline, as its drop does.
    pub(crate) fn cancel(self) {}
}

impl Drop for Deadline {
    /// Cancels the deadline, and restores the signal mask and the action of SIGALRM for the
    /// program that this process executes next.
    fn drop(&mut self) {
        alarm::cancel();
        // SAFETY: the action that is restored is the one that the process had before.
        let _ = unsafe { sigaction(Signal::SIGALRM, &self.action) };
        let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.mask), None);
    }
}

/// Handles SIGALRM: writes the report and exits. A signal handler may call only functions that are
/// async-signal-safe (signal-safety(7)), so this one calls write(2) and _exit(2) alone.
extern "C" fn report_and_exit(_signal: libc::c_int) {
    let subject = SUBJECT.load(Ordering::Acquire);
    // SAFETY: the pointer is null, or points to a string that was leaked and is never changed.
    let subject = unsafe { subject.as_ref() }.map_or("", String::as_str);
    let stage = STAGES.get(usize::from(STAGE.load(Ordering::Relaxed)));
    let parts = [
        "boathook: ",
        subject,
        "deadline exceeded while ",
        stage.unwrap_or(&""),
        "\n",
    ];
    let mut line = [0_u8; 512];
    let mut length = 0;
    for byte in parts.iter().flat_map(|part| part.bytes()) {
        if let Some(place) = line.get_mut(length) {
            *place = byte;
            length += 1;
        }
    }
    for descriptor in [libc::STDERR_FILENO, LOG.load(Ordering::Relaxed)] {
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
