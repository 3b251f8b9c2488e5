//! Writes messages to the node's log `/run/boathook/log` and to syslog, and reads the node's log
//! for `boathook log`.
//!
//! Logging must not delay or prevent the start of a container. So writes do not block, the size of
//! a log file is limited, and a log file or socket that cannot be opened is skipped.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use device_class::config::LogLevel;
use host_files::printable;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::geteuid;

use super::follower::{LogFollower, LogPosition};
use super::format_current_time;
use crate::oci::open_regular;
use crate::process;

/// The path of the log directory, relative to the host's root. Only root can read the directory,
/// because messages contain the names of containers and devices.
const LOG_DIR: &str = "run/boathook";
pub(super) const FILE_NAME: &str = "log";
/// The name of the previous log file. When the log file is full, it is renamed to this name, and
/// the older file with this name is lost.
pub(super) const PREVIOUS_FILE_NAME: &str = "log.1";
/// The size in bytes at which a log file is full. The next process renames it to
/// [`PREVIOUS_FILE_NAME`] and creates a new file.
const MAX_FILE_BYTES: u64 = 256 * 1024;
/// The maximum number of bytes that are read from a log file. A log file may be larger than
/// [`MAX_FILE_BYTES`], because a process checks the size only when it opens the file.
pub(super) const MAX_READ_BYTES: u64 = 2 * MAX_FILE_BYTES;

/// The path of the socket of syslog or journald, relative to the host's root.
const SYSLOG_SOCKET_PATH: &str = "dev/log";
/// The code of the syslog facility `LOG_DAEMON` (syslog(3)). The priority of a message is this code
/// plus the code of its severity, such as 3 for errors.
const LOG_DAEMON: u8 = 3 << 3;

pub(super) struct NodeLog {
    file: Option<File>,
    syslog: Option<UnixDatagram>,
}

impl NodeLog {
    /// Opens the log file and the syslog socket of the host whose root directory is `host_root`. If
    /// one of them cannot be opened, only the other one is used.
    pub(super) fn open(host_root: &Path) -> Self {
        let file = open_first_log_file(host_root);
        if let Some(file) = &file {
            crate::sys::deadline::set_report_file(file);
        }
        let syslog = UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            socket.connect(host_root.join(SYSLOG_SOCKET_PATH))?;
            Ok(socket)
        });
        NodeLog {
            file,
            syslog: syslog.ok(),
        }
    }

    /// Writes a line to the log file and to syslog. Only the log file gets a time stamp, because
    /// syslog adds its own.
    pub(super) fn write(&self, level: LogLevel, line: &str) {
        if let Some(file) = &self.file {
            write_line_with_time(file, line);
        }
        if let Some(syslog) = &self.syslog {
            let severity = match level {
                LogLevel::Error => 3,
                LogLevel::Warning => 4,
                LogLevel::Info => 6,
            };
            let _ = syslog.send(format!("<{}>{line}", LOG_DAEMON | severity).as_bytes());
        }
    }
}

/// Appends a line with a time stamp to the log file below `host_root`. Opens the file again for
/// each line, because a hook may have renamed a full log file since the last line.
pub(super) fn append_line_with_time(host_root: &Path, line: &str) {
    if let Some(file) = open_first_log_file(host_root) {
        write_line_with_time(&file, line);
    }
}

fn write_line_with_time(mut file: &File, line: &str) {
    // One write(2) writes the whole line, so that the lines of concurrent hooks do not mix.
    let _ = file.write_all(format!("{} {line}\n", format_current_time()).as_bytes());
}

fn open_first_log_file(host_root: &Path) -> Option<File> {
    let directories = list_log_directories(host_root);
    directories
        .iter()
        .find_map(|directory| open_log_file(directory).ok())
}

/// Returns the directories that may contain a log: the node's directory, and for a rootless engine
/// also `/run/user/UID/boathook`. The user of a rootless engine may not write to the node's
/// directory, even as the root user of a user namespace.
pub fn list_log_directories(host_root: &Path) -> Vec<PathBuf> {
    let mut directories = vec![host_root.join(LOG_DIR)];
    if let Some(uid) = process::host_uid().filter(|uid| *uid != 0) {
        directories.push(host_root.join(format!("run/user/{uid}/boathook")));
    }
    directories
}

/// Creates a directory in which only this user can create files. If the directory exists, checks
/// its owner and its mode.
///
/// # Errors
/// Fails if the directory belongs to another user, or if other users may write to it.
pub fn create_own_directory(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let metadata = fs::symlink_metadata(directory)?;
    let is_own_directory = metadata.is_dir() && metadata.uid() == geteuid().as_raw();
    if is_own_directory && metadata.mode() & 0o022 == 0 {
        Ok(())
    } else {
        Err(io::Error::other("not a directory of this user alone"))
    }
}

/// Opens the log file in `directory` for appending. If the file has reached [`MAX_FILE_BYTES`],
/// renames it to `log.1` and creates a new file.
fn open_log_file(directory: &Path) -> io::Result<File> {
    create_own_directory(directory)?;
    let path = directory.join(FILE_NAME);
    let file = open_for_appending(&path)?;
    let metadata = file.metadata()?;
    if metadata.len() < MAX_FILE_BYTES {
        return Ok(file);
    }
    // A hook that runs at the same time may already have renamed the full file and created a new
    // one. The new file must not be renamed.
    if fs::symlink_metadata(&path)
        .is_ok_and(|current_metadata| current_metadata.ino() == metadata.ino())
    {
        fs::rename(&path, directory.join(PREVIOUS_FILE_NAME))?;
    }
    open_for_appending(&path)
}

fn open_for_appending(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_WRONLY
        | OFlag::O_APPEND
        | OFlag::O_CREAT
        | OFlag::O_NOFOLLOW
        // With O_NONBLOCK, open(2) fails at once if the file is a FIFO without a reader. Otherwise
        // it would wait for one.
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

/// Returns the log messages of the host whose root directory is `host_root`, oldest first.
pub fn read_lines(host_root: &Path) -> io::Result<Vec<String>> {
    read_lines_with_follower(host_root).map(|(lines, _)| lines)
}

/// Returns the log messages, oldest first, and a [`LogFollower`]. The follower continues after the
/// last message, so that no line is lost or read twice. If the user may not read the node's log,
/// logs a warning and returns the messages of the user's rootless engine.
pub fn read_lines_with_follower(host_root: &Path) -> io::Result<(Vec<String>, LogFollower)> {
    let directories = list_log_directories(host_root);
    let has_user_log = directories.len() > 1;
    let (mut lines, mut log_positions) = (Vec::new(), Vec::new());
    for (index, directory) in directories.into_iter().enumerate() {
        match read_log_directory(&directory) {
            Err(error)
                if index == 0
                    && has_user_log
                    && error.kind() == io::ErrorKind::PermissionDenied =>
            {
                super::warning(&format!(
                    "{error}; run as root to see the messages of root's engines"
                ));
            }
            read_result => {
                let (directory_lines, position) = read_result?;
                lines.extend(directory_lines);
                log_positions.push(position);
            }
        }
    }
    Ok((lines, LogFollower(log_positions)))
}

/// Returns the complete lines of the log files `log.1` and `log` in a directory. Also returns the
/// position after these lines in `log`, from which a [`LogFollower`] continues.
fn read_log_directory(directory: &Path) -> io::Result<(Vec<String>, LogPosition)> {
    let mut lines = Vec::new();
    let mut position = LogPosition {
        directory: directory.to_owned(),
        inode: 0,
        offset: 0,
    };
    for name in [PREVIOUS_FILE_NAME, FILE_NAME] {
        let path = directory.join(name);
        match open_regular(&path) {
            Ok(file) => {
                let inode = file.metadata()?.ino();
                let mut bytes = Vec::new();
                file.take(MAX_READ_BYTES).read_to_end(&mut bytes)?;
                if name == FILE_NAME {
                    // If the last line has no newline, another process is still writing it. The
                    // `LogFollower` reads this line later.
                    let last_newline = bytes.iter().rposition(|byte| *byte == b'\n');
                    bytes.truncate(last_newline.map_or(0, |last_newline| last_newline + 1));
                    (position.inode, position.offset) = (inode, bytes.len() as u64);
                }
                let text = String::from_utf8_lossy(&bytes);
                lines.extend(text.lines().map(printable::escape_line));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let message = format!("cannot read {}: {error}", path.display());
                return Err(io::Error::new(error.kind(), message));
            }
        }
    }
    Ok((lines, position))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn printed(directory: &Path) -> String {
        let (lines, _) = read_log_directory(directory).unwrap();
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn the_log_belongs_to_root_and_is_bounded() {
        let top = tempfile::tempdir().unwrap();
        let directory = top.path().join("boathook");
        assert_eq!(printed(&directory), "");
        let line = format!("{}\n", "x".repeat(1023));
        for count in 0..700 {
            let mut file = open_log_file(&directory).unwrap();
            file.write_all(format!("{count:04} {line}").as_bytes())
                .unwrap();
        }
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!(mode(&directory), 0o700);
        assert_eq!(mode(&directory.join(FILE_NAME)), 0o600);
        let mut size = 0;
        for entry in fs::read_dir(&directory).unwrap() {
            size += entry.unwrap().metadata().unwrap().len();
        }
        assert!(size <= 2 * (MAX_FILE_BYTES + 2048), "{size}");
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
        assert!(open_log_file(&directory).is_err(), "a link");
        fs::remove_file(&directory).unwrap();

        fs::create_dir(&directory).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(open_log_file(&directory).is_err(), "writable by others");
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();

        symlink("../target", directory.join(FILE_NAME)).unwrap();
        assert!(open_log_file(&directory).is_err(), "a link as the file");
        fs::remove_file(directory.join(FILE_NAME)).unwrap();
        nix::unistd::mkfifo(&directory.join(FILE_NAME), Mode::from_bits_truncate(0o600)).unwrap();
        assert!(open_log_file(&directory).is_err(), "a FIFO");
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
        assert!(!top.path().join("target").exists());
    }

    #[test]
    fn what_was_written_by_others_is_printed_safely() {
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join(FILE_NAME), b"a\x1b[2J\xff\n").unwrap();
        assert_eq!(printed(top.path()), "a\\u{1b}[2J\u{fffd}\n");
    }
}
