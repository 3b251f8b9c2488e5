//! The node's log `/run/boathook/log`, which `boathook log` prints, and syslog.
//!
//! Logging must not delay or stop a container. Writes do not block, the log file has a size
//! limit, and a destination that cannot be opened is skipped.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use device_class::config::LogLevel;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::geteuid;

use super::now;
use crate::oci::open_regular;
use crate::process;

/// The directory of the log, below the root of the host. Only root can read it, because
/// messages name containers and their devices.
const DIRECTORY: &str = "run/boathook";
pub(super) const NAME: &str = "log";
/// The previous log file, which is kept when a new one is started.
pub(super) const PREVIOUS: &str = "log.1";
/// The size limit of a log file in bytes. A larger file is renamed to [`PREVIOUS`], so that at
/// most two files exist.
const MAX_FILE_SIZE: u64 = 256 * 1024;
/// The most bytes that are read of a file. It may be larger than its limit by one message.
pub(super) const MAX_READ: u64 = 2 * MAX_FILE_SIZE;

/// The socket of syslog or journald, below the root of the host.
const SYSLOG: &str = "dev/log";
/// The facility `LOG_DAEMON` (syslog(3)). The severity is added to it.
const FACILITY: u8 = 3 << 3;

pub(super) struct NodeLog {
    file: Option<File>,
    syslog: Option<UnixDatagram>,
}

impl NodeLog {
    /// Opens the log file and the syslog socket, as far as they exist on the host whose root
    /// is `root`.
    pub(super) fn open(root: &Path) -> Self {
        let file = list_directories(root)
            .iter()
            .find_map(|directory| open(directory).ok());
        if let Some(file) = &file {
            crate::sys::deadline::also_report_to(file);
        }
        let syslog = UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            socket.connect(root.join(SYSLOG))?;
            Ok(socket)
        });
        NodeLog {
            file,
            syslog: syslog.ok(),
        }
    }

    /// Writes a message to both destinations. The log file needs the time in the line; syslog
    /// adds it by itself.
    pub(super) fn write(&self, level: LogLevel, line: &str) {
        if let Some(mut file) = self.file.as_ref() {
            // The line is written by one call, so that lines of concurrent hooks do not mix.
            let _ = file.write_all(format!("{} {line}\n", now()).as_bytes());
        }
        if let Some(syslog) = &self.syslog {
            let severity = match level {
                LogLevel::Error => 3,
                LogLevel::Warning => 4,
                LogLevel::Info => 6,
            };
            let _ = syslog.send(format!("<{}>{line}", FACILITY | severity).as_bytes());
        }
    }
}

/// Returns the directories that can have a log: that of the node, and that of the user who
/// runs a rootless engine. Root in a user namespace may not write to the directory of the
/// node.
pub(crate) fn list_directories(root: &Path) -> Vec<PathBuf> {
    let mut directories = vec![root.join(DIRECTORY)];
    if let Some(uid) = process::host_user().filter(|uid| *uid != 0) {
        directories.push(root.join(format!("run/user/{uid}/boathook")));
    }
    directories
}

/// Creates a directory that only this user can write to, or checks the existing one.
///
/// # Errors
/// The call fails if the directory belongs to another user, or if other users may write to it.
pub(crate) fn create_own_directory(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let metadata = fs::symlink_metadata(directory)?;
    let is_ours = metadata.is_dir() && metadata.uid() == geteuid().as_raw();
    if is_ours && metadata.mode() & 0o022 == 0 {
        Ok(())
    } else {
        Err(io::Error::other("not a directory of this user alone"))
    }
}

/// Opens the log in `directory` for appending, and starts a new file if the old one is full.
fn open(directory: &Path) -> io::Result<File> {
    create_own_directory(directory)?;
    let path = directory.join(NAME);
    let file = append_to(&path)?;
    let opened = file.metadata()?;
    if opened.len() < MAX_FILE_SIZE {
        return Ok(file);
    }
    // The file is renamed only if the name still leads to it: a concurrent hook may have
    // started a new file.
    if fs::symlink_metadata(&path).is_ok_and(|named| named.ino() == opened.ino()) {
        fs::rename(&path, directory.join(PREVIOUS))?;
    }
    append_to(&path)
}

fn append_to(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_WRONLY
        | OFlag::O_APPEND
        | OFlag::O_CREAT
        | OFlag::O_NOFOLLOW
        // `O_NONBLOCK` keeps the call from waiting for a reader if the file is a pipe.
        | OFlag::O_NONBLOCK
        | OFlag::O_NOCTTY
        | OFlag::O_CLOEXEC;
    let file = File::from(nix::fcntl::open(
        path,
        flags,
        Mode::S_IRUSR | Mode::S_IWUSR,
    )?);
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("not a regular file"))
    }
}

/// Returns the kept messages of the host whose root is `root`, oldest first. A user who may
/// not read the log of the node gets a warning, and the messages of the user's own rootless
/// engine.
pub(crate) fn lines(root: &Path) -> io::Result<Vec<String>> {
    let directories = list_directories(root);
    let has_own = directories.len() > 1;
    let mut lines = Vec::new();
    for (index, directory) in directories.iter().enumerate() {
        match read_lines_in(directory) {
            Err(error)
                if index == 0 && has_own && error.kind() == io::ErrorKind::PermissionDenied =>
            {
                super::warning(&format!(
                    "{error}; run as root to see the messages of root's engines"
                ));
            }
            read => lines.extend(read?),
        }
    }
    Ok(lines)
}

fn read_lines_in(directory: &Path) -> io::Result<Vec<String>> {
    let mut lines = Vec::new();
    for path in [PREVIOUS, NAME].map(|name| directory.join(name)) {
        match open_regular(&path) {
            Ok(file) => {
                let mut bytes = Vec::new();
                file.take(MAX_READ).read_to_end(&mut bytes)?;
                let text = String::from_utf8_lossy(&bytes);
                lines.extend(text.lines().map(printable::line));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let message = format!("cannot read {}: {error}", path.display());
                return Err(io::Error::new(error.kind(), message));
            }
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn printed(directory: &Path) -> String {
        let lines = read_lines_in(directory).unwrap();
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn the_log_belongs_to_root_and_is_bounded() {
        let top = tempfile::tempdir().unwrap();
        let directory = top.path().join("boathook");
        assert_eq!(printed(&directory), "");
        let line = format!("{}\n", "x".repeat(1023));
        for count in 0..700 {
            let mut file = open(&directory).unwrap();
            file.write_all(format!("{count:04} {line}").as_bytes())
                .unwrap();
        }
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!(mode(&directory), 0o700);
        assert_eq!(mode(&directory.join(NAME)), 0o600);
        let mut size = 0;
        for entry in fs::read_dir(&directory).unwrap() {
            size += entry.unwrap().metadata().unwrap().len();
        }
        assert!(size <= 2 * (MAX_FILE_SIZE + 2048), "{size}");
        let printed = printed(&directory);
        let numbers: Vec<&str> = printed.lines().map(|line| &line[..4]).collect();
        assert!(numbers.is_sorted() && numbers.last() == Some(&"0699"));
        assert!(numbers.len() > 250, "{}", numbers.len());
    }

    #[test]
    fn a_directory_or_file_of_another_kind_is_not_used() {
        let top = tempfile::tempdir().unwrap();
        let directory = top.path().join("boathook");
        let elsewhere = top.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        symlink(&elsewhere, &directory).unwrap();
        assert!(open(&directory).is_err(), "a link");
        fs::remove_file(&directory).unwrap();

        fs::create_dir(&directory).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(open(&directory).is_err(), "writable by others");
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();

        symlink("../target", directory.join(NAME)).unwrap();
        assert!(open(&directory).is_err(), "a link as the file");
        fs::remove_file(directory.join(NAME)).unwrap();
        nix::unistd::mkfifo(&directory.join(NAME), Mode::from_bits_truncate(0o600)).unwrap();
        assert!(open(&directory).is_err(), "a FIFO");
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
        assert!(!top.path().join("target").exists());
    }

    #[test]
    fn what_was_written_by_others_is_printed_safely() {
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join(NAME), b"a\x1b[2J\xff\n").unwrap();
        assert_eq!(printed(top.path()), "a\\u{1b}[2J\u{fffd}\n");
    }
}
