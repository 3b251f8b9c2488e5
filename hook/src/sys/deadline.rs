//! The end of a process that takes too long.
//!
//! SIGALRM has a handler that reports what took so long, and exits. A process
//! that sleeps in the kernel where a handled signal does not reach it, as behind
//! a driver or a FUSE server that does not answer, is killed a second later by a
//! timer of its own.

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

/// How long the hook, and the wrapper before it becomes the runtime, may take
/// for everything but the programs of `[prepare]`, in seconds.
///
/// The work takes milliseconds. What can take longer has limits of its own that
/// fit in here, such as two seconds for systemd; the kubelet gives a container
/// two minutes to start.
pub(crate) const SECONDS: u32 = 10;

/// By when a process with this deadline has ended, if it can be killed.
pub(crate) const LIMIT: Duration = Duration::from_secs(SECONDS as u64 + 2);

/// What the process is doing, for the report.
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
/// Whom the report concerns, ended by `: `; leaked when it is set.
static SUBJECT: AtomicPtr<String> = AtomicPtr::new(null_mut());
/// A second descriptor to report to; stderr alone if it is negative.
static LOG: AtomicI32 = AtomicI32::new(-1);

impl Stage {
    pub(crate) fn begin(self) {
        STAGE.store(self as u8, Ordering::Relaxed);
    }
}

/// Names the container in the report, by its id without control characters.
pub(crate) fn concerns(id: &str) {
    let subject = format!("container {id}: ");
    SUBJECT.store(Box::into_raw(Box::new(subject)), Ordering::Release);
}

/// Has the report written to an open file as well, which stays open as long as
/// the process.
pub(crate) fn also_report_to(file: &File) {
    LOG.store(file.as_raw_fd(), Ordering::Relaxed);
}

pub(crate) struct Deadline {
    mask: SigSet,
    action: SigAction,
    kill: Timer,
}

/// The time from the deadline to SIGKILL.
const LAST: Duration = Duration::from_secs(1);

impl Deadline {
    /// Ends the process in so many seconds.
    pub(crate) fn start(seconds: u32) -> Result<Self, Errno> {
        let handler = SigHandler::Handler(expired);
        let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
        // SAFETY: `expired` calls only functions that a handler of a signal may
        // call (signal-safety(7)), and changes nothing.
        let action = unsafe { sigaction(Signal::SIGALRM, &action) }?;
        // The parent process may have blocked it.
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
        deadline.end_in(seconds)?;
        Ok(deadline)
    }

    fn end_in(&mut self, seconds: u32) -> Result<(), Errno> {
        alarm::set(seconds);
        let end = Duration::from_secs(seconds.into()) + LAST;
        let end = Expiration::OneShot(end.into());
        self.kill.set(end, TimerSetTimeFlags::empty())
    }

    pub(crate) fn pause<T>(&mut self, work: impl FnOnce() -> T) -> Result<T, Errno> {
        let left = alarm::cancel();
        let never = Expiration::OneShot(Duration::ZERO.into());
        self.kill.set(never, TimerSetTimeFlags::empty())?;
        let done = work();
        left.map_or(Ok(()), |left| self.end_in(left))?;
        Ok(done)
    }

    /// Takes the deadline away, and leaves signals as they were: another program
    /// is to run in this process.
    pub(crate) fn cancel(self) {
        alarm::cancel();
        // SAFETY: what is set is what the process had before.
        let _ = unsafe { sigaction(Signal::SIGALRM, &self.action) };
        let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.mask), None);
    }
}

/// Reports and exits, by write(2) and _exit(2) alone.
extern "C" fn expired(_signal: libc::c_int) {
    let subject = SUBJECT.load(Ordering::Acquire);
    // SAFETY: null, or a string that was leaked and is never changed.
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
    // SAFETY: it does not return, and runs nothing of this process.
    unsafe { libc::_exit(ExitCode::Deadline as libc::c_int) }
}
