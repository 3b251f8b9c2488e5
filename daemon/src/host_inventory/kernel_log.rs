//! Reads the kernel's log (`/dev/kmsg`) without waiting for new records.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use device_class::discover::KernelLogRecord;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

/// The maximum number of log records that one scan reads. Without this limit, the scan would not
/// end while a driver writes to the log in a loop.
const MAX_RECORDS: usize = 16_384;

/// The maximum size in bytes of a log record (`CONSOLE_EXT_LOG_MAX` of the kernel).
const MAX_RECORD_BYTES: usize = 8192;

/// The kernel's log, opened for reading. The first read returns the oldest record that the kernel
/// still has.
#[derive(Debug)]
pub(crate) struct KernelLog(File);

impl KernelLog {
    /// Opens `dev/kmsg` below the host's root directory.
    ///
    /// # Errors
    /// Returns an error if the file does not exist or cannot be opened. Only a privileged container
    /// can open it.
    pub(crate) fn open(host_root: &Path) -> io::Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = open(&host_root.join("dev/kmsg"), flags, Mode::empty())?;
        Ok(KernelLog(file.into()))
    }

    /// Returns the records since the previous call, but at most [`MAX_RECORDS`]. The next call
    /// returns the other records.
    pub(crate) fn read_new_records(&mut self) -> io::Result<Vec<KernelLogRecord>> {
        let mut records = Vec::new();
        let mut buffer = [0; MAX_RECORD_BYTES];
        for _ in 0..MAX_RECORDS {
            match self.0.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => records.extend(KernelLogRecord::parse(&buffer[..length])),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // EPIPE means that the kernel has overwritten records that were not read yet. The
                // next read returns the oldest record that still exists.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                Err(error) => return Err(error),
            }
        }
        Ok(records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file instead of the log returns all records in one read; the log returns one
    /// per read.
    #[test]
    fn what_is_read_once_is_not_read_again() {
        let host = tempfile::tempdir().unwrap();
        assert!(KernelLog::open(host.path()).is_err());
        std::fs::create_dir(host.path().join("dev")).unwrap();
        let file = host.path().join("dev/kmsg");
        std::fs::write(&file, "6,1,5,-;first\n").unwrap();
        let mut log = KernelLog::open(host.path()).unwrap();
        let first = KernelLogRecord::parse(b"6,1,5,-;first").unwrap();
        assert_eq!(log.read_new_records().unwrap(), [first]);
        assert_eq!(log.read_new_records().unwrap(), []);
    }

    /// Reads the kernel's own log, if this process may read it.
    #[test]
    fn the_kernels_log_is_read_without_waiting() {
        let mut log = match KernelLog::open(Path::new("/")) {
            Ok(log) => log,
            Err(error) => return skip::report(module_path!(), &format!("/dev/kmsg: {error}")),
        };
        let mut records = 0;
        loop {
            let lines = log.read_new_records().unwrap();
            records += lines.len();
            if lines.len() < MAX_RECORDS / 2 {
                break;
            }
        }
        assert!(records > 0);
    }
}
