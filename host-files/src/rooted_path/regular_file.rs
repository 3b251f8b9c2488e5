//! Opens regular files without blocking, and reads them up to a size limit.
//!
//! A program that runs as root opens files at fixed paths, where another user may have put
//! something else. Opening a named pipe would block, a symbolic link would lead to another file,
//! and an endless file would use up all memory.
//!
//! [`open_own_file`] is for files that only Boathook writes. It refuses pipes, links, and files to
//! which other users can write. [`open_regular_file`] is for files of other programs. It follows
//! links, because administrators often replace configuration files with links.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{FileStat, Mode, fstat};

use crate::rooted_path::FileKind;
use crate::rooted_path::owner::is_root_or_this_user;

/// The mode bits that allow the group and other users to write to a file.
const GROUP_OR_OTHERS_WRITE_BITS: u32 = 0o022;

/// The flags of open(2) with which the call does not block, for example at a named pipe, and does
/// not make a terminal the controlling terminal of this process.
const NON_BLOCKING_FLAGS: OFlag = OFlag::O_NONBLOCK
    .union(OFlag::O_NOCTTY)
    .union(OFlag::O_CLOEXEC);

/// The size in bytes of the first read if the metadata of a file shows the size 0, as for every
/// file of procfs. One read of this size is enough for most of these files.
const FIRST_READ_BYTES: u64 = 4096;

/// A regular file that is open for reading, and the size in bytes that it had when it was opened.
#[derive(Debug)]
pub struct RegularFile {
    file: File,
    size: u64,
}

impl RegularFile {
    /// Creates the value from an open file and its metadata. The caller must have checked that the
    /// file is a regular file.
    pub fn new(file: File, stat: &FileStat) -> Self {
        let size = u64::try_from(stat.st_size).unwrap_or_default();
        RegularFile { file, size }
    }

    /// Opens a regular file for reading. Symbolic links are followed. Any program may have written
    /// the file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened or is not a regular file. The message does not
    /// contain the path.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = open_non_blocking(path, OFlag::O_RDONLY)?;
        let stat = read_stat(&file)?;
        check_kind(&stat)?;
        Ok(Self::new(file, &stat))
    }

    /// Returns the open file, for a caller that reads parts of it.
    pub fn into_file(self) -> File {
        self.file
    }

    /// Reads the file to its end, but not more than `max_bytes` bytes.
    ///
    /// If the size of the file has not changed since it was opened, one system call is enough. The
    /// buffer is one byte larger than the file, so a read that does not fill the buffer has reached
    /// the end.
    pub fn read(mut self, max_bytes: u64) -> io::Result<Vec<u8>> {
        let first_length = if self.size == 0 {
            FIRST_READ_BYTES
        } else {
            self.size + 1
        };
        let mut bytes = vec![0; to_buffer_length(first_length.min(max_bytes))];
        let mut length = 0;
        while length < bytes.len() {
            match self.file.read(&mut bytes[length..]) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if length == bytes.len() {
                bytes.resize(length.saturating_mul(2).min(to_buffer_length(max_bytes)), 0);
            } else if length as u64 == self.size {
                break;
            }
        }
        bytes.truncate(length);
        Ok(bytes)
    }

    /// Reads the whole file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or if it has more than `max_bytes` bytes.
    pub fn read_bounded(self, max_bytes: u64) -> io::Result<Vec<u8>> {
        let bytes = self.read(max_bytes.saturating_add(1))?;
        check_length(bytes, max_bytes)
    }
}

fn to_buffer_length(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

/// Opens a regular file for reading, as [`RegularFile::open`] does. Any program may have written
/// the file.
pub fn open_regular_file(path: &Path) -> io::Result<File> {
    Ok(RegularFile::open(path)?.file)
}

/// Opens a regular file of Boathook for reading. A file to which another user could have written is
/// refused.
///
/// # Errors
/// Returns an error if the file cannot be opened, if it is a symbolic link or not a regular file,
/// if its owner is neither root nor this user, or if the group or other users may write to it. The
/// message does not contain the path.
pub fn open_own_file(path: &Path) -> io::Result<File> {
    Ok(open_own_regular_file(path)?.file)
}

/// Opens a file with the same checks as [`open_own_file`], and also returns its size.
fn open_own_regular_file(path: &Path) -> io::Result<RegularFile> {
    let file = open_non_blocking(path, OFlag::O_RDONLY.union(OFlag::O_NOFOLLOW))?;
    let stat = check_own_file(&file)?;
    Ok(RegularFile::new(file, &stat))
}

/// Opens a lock file for reading and writing, and creates it with mode 0600 if it does not
/// exist. The content of an existing file is not changed.
///
/// # Errors
/// Returns the same errors as [`open_own_file`].
pub fn open_lock_file(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_RDWR.union(OFlag::O_CREAT).union(OFlag::O_NOFOLLOW);
    let file = open_non_blocking(path, flags)?;
    check_own_file(&file)?;
    Ok(file)
}

/// Reads a regular file that any program may have written.
///
/// # Errors
/// Returns an error if the file cannot be read, is not a regular file, or is larger than
/// `max_bytes` bytes.
pub fn read_regular_file(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    RegularFile::open(path)?.read_bounded(max_bytes)
}

/// Reads a UTF-8 text of at most `max_bytes` bytes from a regular file that any program may have
/// written.
pub fn read_regular_text(path: &Path, max_bytes: u64) -> io::Result<String> {
    into_text(read_regular_file(path, max_bytes)?)
}

/// Reads a UTF-8 text of at most `max_bytes` bytes from a file that only Boathook writes.
///
/// # Errors
/// Returns the same errors as [`open_own_file`], and an error if the file is larger than
/// `max_bytes` bytes or is not UTF-8.
pub fn read_own_text(path: &Path, max_bytes: u64) -> io::Result<String> {
    into_text(open_own_regular_file(path)?.read_bounded(max_bytes)?)
}

/// Reads an open file from its current position to its end.
///
/// # Errors
/// Returns an error if the file cannot be read, or if it has more than `max_bytes` bytes after this
/// position.
pub fn read_bounded(file: &File, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(max_bytes + 1).read_to_end(&mut bytes)?;
    check_length(bytes, max_bytes)
}

fn check_length(bytes: Vec<u8>, max_bytes: u64) -> io::Result<Vec<u8>> {
    if bytes.len() as u64 > max_bytes {
        let text = format!("larger than {max_bytes} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}

fn into_text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn open_non_blocking(path: &Path, flags: OFlag) -> io::Result<File> {
    let mode = Mode::S_IRUSR.union(Mode::S_IWUSR);
    match open(path, flags.union(NON_BLOCKING_FLAGS), mode) {
        Ok(file) => Ok(file.into()),
        Err(Errno::ELOOP) if flags.contains(OFlag::O_NOFOLLOW) => {
            Err(not_regular_error(FileKind::Symlink))
        }
        // open(2) fails with ENXIO for a socket. It fails with EISDIR for a directory that is
        // opened for writing.
        Err(Errno::ENXIO) => Err(not_regular_error(FileKind::Socket)),
        Err(Errno::EISDIR) => Err(not_regular_error(FileKind::Directory)),
        Err(errno) => Err(errno.into()),
    }
}

fn read_stat(file: impl AsFd) -> io::Result<FileStat> {
    Ok(fstat(file)?)
}

fn check_kind(stat: &FileStat) -> io::Result<()> {
    match FileKind::from_stat(stat) {
        FileKind::Regular => Ok(()),
        kind => Err(not_regular_error(kind)),
    }
}

/// Checks that an open file is a regular file, that it belongs to root or to this user, and that
/// neither its group nor other users may write to it. Returns the metadata of the file.
fn check_own_file(file: &File) -> io::Result<FileStat> {
    let stat = read_stat(file)?;
    check_kind(&stat)?;
    if !is_root_or_this_user(stat.st_uid) {
        let text = format!("it belongs to uid {}, not to root", stat.st_uid);
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    if stat.st_mode & GROUP_OR_OTHERS_WRITE_BITS != 0 {
        let mode = stat.st_mode & 0o7777;
        let text = format!("its mode is {mode:04o}, so that others can change it");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(stat)
}

/// Returns the error for a file that has this kind, where a regular file is required.
pub fn not_regular_error(kind: FileKind) -> io::Error {
    io::Error::other(format!("it is {kind}, not a regular file"))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::os::unix::net::UnixListener;
    use std::time::{Duration, Instant};

    use nix::unistd::{geteuid, mkfifo};

    use super::*;

    /// A test case: its name, a function that creates a file at a path, and the expected errors
    /// if the path is opened as a file that only Boathook writes, and as a file of any program.
    type Case = (
        &'static str,
        fn(&Path),
        Option<&'static str>,
        Option<&'static str>,
    );

    const MAX: u64 = 100;

    #[test]
    fn links_pipes_and_foreign_files_are_refused_without_waiting() {
        const LINK: &str = "it is a symbolic link, not a regular file";
        const PIPE: &str = "it is a named pipe, not a regular file";
        const DIRECTORY: &str = "it is a directory, not a regular file";
        const SOCKET: &str = "it is a socket, not a regular file";
        const LARGE: &str = "larger than 100 bytes";
        const MODE: &str = "its mode is 0666, so that others can change it";
        const OWNER: &str = "it belongs to uid 1000, not to root";
        let mut cases: Vec<Case> = vec![
            ("a file", |path| write(path, "text"), None, None),
            (
                "a file of the maximum size",
                |path| write(path, &"x".repeat(100)),
                None,
                None,
            ),
            (
                "a larger file",
                |path| write(path, &"x".repeat(101)),
                Some(LARGE),
                Some(LARGE),
            ),
            (
                "a pipe",
                |path| mkfifo(path, Mode::S_IRWXU).unwrap(),
                Some(PIPE),
                Some(PIPE),
            ),
            (
                "a directory",
                |path| fs::create_dir(path).unwrap(),
                Some(DIRECTORY),
                Some(DIRECTORY),
            ),
            (
                "a socket",
                |path| drop(UnixListener::bind(path).unwrap()),
                Some(SOCKET),
                Some(SOCKET),
            ),
            (
                "a link to a file",
                |path| {
                    write(&path.with_extension("target"), "text");
                    symlink(path.with_extension("target"), path).unwrap();
                },
                Some(LINK),
                None,
            ),
            (
                "a link to a pipe",
                |path| {
                    mkfifo(&path.with_extension("target"), Mode::S_IRWXU).unwrap();
                    symlink(path.with_extension("target"), path).unwrap();
                },
                Some(LINK),
                Some(PIPE),
            ),
            (
                "a file that others can change",
                |path| {
                    write(path, "text");
                    fs::set_permissions(path, Permissions::from_mode(0o666)).unwrap();
                },
                Some(MODE),
                None,
            ),
        ];
        if geteuid().is_root() {
            let foreign: Case = (
                "a file of another user",
                |path| {
                    write(path, "text");
                    chown(path, Some(1000), None).unwrap();
                },
                Some(OWNER),
                None,
            );
            cases.push(foreign);
        }
        for (name, create, own, regular) in cases {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("file");
            create(&path);
            let start = Instant::now();
            let reason = |read: io::Result<String>| read.err().map(|error| error.to_string());
            assert_eq!(reason(read_own_text(&path, MAX)).as_deref(), own, "{name}");
            assert_eq!(
                reason(read_regular_text(&path, MAX)).as_deref(),
                regular,
                "{name}"
            );
            let lock = open_lock_file(&path).err().map(|error| error.to_string());
            let own = own.filter(|reason| *reason != LARGE);
            assert_eq!(lock.as_deref(), own, "{name}: as a lock");
            assert!(start.elapsed() < Duration::from_secs(5), "{name}: waited");
        }
    }

    #[test]
    fn a_file_that_grows_or_shrinks_is_read_up_to_the_bound() {
        const LONG: usize = 3 * FIRST_READ_BYTES as usize + 1;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        // The length of the file when it is opened, when it is read, and the bound.
        for (opened, read, max) in [
            (0, 0, 10),
            (1, 1, 10),
            (9, 9, 10),
            (10, 10, 10),
            (11, 11, 10),
            (LONG, LONG, LONG),
            (5, LONG, LONG),
            (5, LONG, 4096),
            (LONG, 5, LONG),
            (LONG, 0, 10),
            (0, LONG, LONG),
            (5, 6, 0),
        ] {
            write(&path, &"x".repeat(opened));
            let file = RegularFile::open(&path).unwrap();
            let text = "y".repeat(read);
            write(&path, &text);
            let bytes = file.read(max as u64).unwrap();
            assert_eq!(
                bytes,
                &text.as_bytes()[..read.min(max)],
                "{opened} {read} {max}"
            );
        }
    }

    /// The files of procfs have the size 0 in their metadata, and those of sysfs that of a page.
    #[test]
    fn a_file_of_the_kernel_is_read_to_its_end() {
        for path in [
            "/proc/filesystems",
            "/proc/self/environ",
            "/sys/kernel/mm/transparent_hugepage/enabled",
        ] {
            let Ok(expected) = fs::read(path) else {
                continue;
            };
            let bytes = read_regular_file(Path::new(path), 1 << 30).unwrap();
            let (length, expected_length) = (bytes.len(), expected.len());
            assert!(bytes == expected, "{path}: {length} of {expected_length}");
        }
    }

    #[test]
    fn a_lock_file_is_created_and_keeps_its_content() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        open_lock_file(&path).unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o7777,
            0o600
        );
        write(&path, "text");
        open_lock_file(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");
        // Following a dangling link would create a file at the target of the link.
        let link = directory.path().join("link");
        symlink(directory.path().join("nothing"), &link).unwrap();
        open_lock_file(&link).unwrap_err();
        assert!(!directory.path().join("nothing").exists());
    }

    fn write(path: &Path, text: &str) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
    }
}
