//! Loads a device program into the kernel. If the kernel's verifier refuses the program, the error
//! contains the end of the verifier's log.

use nix::errno::Errno;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};

use super::kernel::Kernel;
use crate::sys::bpf::Insn;

/// The size in bytes of the buffer to which the kernel's verifier writes its log.
const LOG_BUFFER_SIZE: usize = 64 * 1024;
/// The number of bytes that an error message includes from the end of the verifier's log.
const LOG_EXCERPT_SIZE: usize = 400;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoadError {
    pub(super) errno: Errno,
    /// The end of the verifier's log, on one line. It may be empty.
    pub(super) log: String,
}

/// Loads `program` into the kernel. If the kernel refuses it, tries once more with a buffer for the
/// verifier's log. After EPERM, first raises the limit of locked memory (RLIMIT_MEMLOCK).
pub(super) fn load_program<K: Kernel>(
    kernel: &K,
    program: &[Insn],
) -> Result<K::Program, LoadError> {
    let errno = match kernel.load(program, &mut []) {
        Ok(loaded) => return Ok(loaded),
        Err(errno) => errno,
    };
    // Before Linux 5.11, eBPF programs count as locked memory. If a program exceeds the limit, the
    // kernel refuses to load it with EPERM.
    if errno == Errno::EPERM {
        raise_memlock_limit();
    }
    let mut log = vec![0; LOG_BUFFER_SIZE];
    kernel.load(program, &mut log).map_err(|errno| LoadError {
        errno,
        log: format_log_tail(&log),
    })
}

/// Raises RLIMIT_MEMLOCK to infinity, or to the hard limit if this process may not exceed that. A
/// failure is ignored, because the next attempt to load the program then fails and reports an
/// error.
fn raise_memlock_limit() {
    let resource = Resource::RLIMIT_MEMLOCK;
    if setrlimit(resource, RLIM_INFINITY, RLIM_INFINITY).is_err()
        && let Ok((_, hard_limit)) = getrlimit(resource)
    {
        let _ = setrlimit(resource, hard_limit, hard_limit);
    }
}

/// Returns the last [`LOG_EXCERPT_SIZE`] bytes of the verifier's log, on one line. The end of the
/// log says why the verifier refused the program.
fn format_log_tail(log: &[u8]) -> String {
    let log_len = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    let log_end = &log[log_len.saturating_sub(LOG_EXCERPT_SIZE)..log_len];
    String::from_utf8_lossy(log_end)
        .lines()
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_end_of_the_log_on_one_line() {
        assert_eq!(
            format_log_tail(b"0: (95) exit\nR0 !read_ok\n\0\0"),
            "0: (95) exit; R0 !read_ok"
        );
        assert_eq!(format_log_tail(b"\0\0"), "");
        assert_eq!(format_log_tail(&[]), "");
        assert_eq!(
            format_log_tail(&[b'x'; LOG_BUFFER_SIZE]).len(),
            LOG_EXCERPT_SIZE
        );
    }
}
