//! The process itself.

use nix::errno::Errno;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

pub(crate) fn clear_environment() {
    // SAFETY: the process has one thread, so no other code reads the environment
    // meanwhile, and no pointer into it is kept across this call.
    unsafe {
        libc::clearenv();
    }
}

/// Has a write beyond the limit on file sizes fail with an error instead of
/// ending the process, and gives what SIGXFSZ did before.
pub(crate) fn ignore_file_size_signal() -> Result<SigAction, Errno> {
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    // SAFETY: no handler of this program's is involved.
    unsafe { sigaction(Signal::SIGXFSZ, &ignore) }
}

/// Sets what SIGXFSZ does.
pub(crate) fn restore_file_size_signal(action: &SigAction) {
    // SAFETY: it is what the process was started with, so no handler.
    let _ = unsafe { sigaction(Signal::SIGXFSZ, action) };
}

/// Closes every descriptor beyond stdin, stdout and stderr.
pub(crate) fn close_inherited_descriptors() {
    const FIRST: libc::c_uint = 3;
    // SAFETY: called before anything is opened, so no owner of a descriptor
    // in this process is left with a closed one.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, 0) };
    if closed == 0 {
        return;
    }
    // Before Linux 5.9.
    let open = std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten();
    let numbers: Vec<i32> = open
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect();
    for number in numbers.into_iter().filter(|number| *number >= 3) {
        // SAFETY: as above. The listing's own descriptor is closed by now, and
        // closing a number that is not open changes nothing.
        unsafe {
            libc::close(number);
        }
    }
}

/// No backtrace at a panic: a release has neither the tables nor the symbols for one
/// (`build.rs`). With the unwinder's own function, the standard library's code that gives
/// frames their names is linked as well, 190 kB.
// SAFETY: the C++ ABI's `_Unwind_Backtrace(callback, argument)` may call the callback for no
// frame. 5 is its `_URC_END_OF_STACK`.
#[cfg(all(target_env = "musl", panic = "abort"))]
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Backtrace(_: *const libc::c_void, _: *const libc::c_void) -> libc::c_int {
    5
}
