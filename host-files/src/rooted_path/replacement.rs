//! Replaces whole files. A reader sees either the old content or the new content, and never a part
//! of it.

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};

/// The prefix of the names of temporary files. A temporary file gets the new content, and is then
/// renamed. If a process is killed before that, its temporary file is left behind. It does not
/// disturb later replacements, because each replacement uses a new random name.
pub const TEMPORARY_NAME_PREFIX: &str = ".boathook-";

/// The maximum number of random names that are tried for the temporary file. If each of these names
/// is already in use, the replacement fails.
const MAX_NAME_ATTEMPTS: usize = 8;

/// A temporary file that will replace another file in the same directory. If the value is dropped
/// before [`FileReplacement::commit`], the temporary file is removed.
#[derive(Debug)]
pub struct FileReplacement<'a> {
    dir_fd: OwnedFd,
    /// The name of the file that will be replaced.
    target_name: &'a OsStr,
    /// The name of the temporary file. `None` means that the temporary file was already renamed.
    temporary_name: Option<String>,
    file: File,
}

impl<'a> FileReplacement<'a> {
    /// Creates an empty temporary file with mode 0600 in the directory of `path`. Because of
    /// `O_EXCL`, no existing file is opened and no symbolic link is followed.
    pub fn create(path: &'a Path) -> io::Result<Self> {
        let target_name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let flags = OFlag::O_RDONLY
            .union(OFlag::O_DIRECTORY)
            .union(OFlag::O_CLOEXEC);
        let dir_fd = open(parent.unwrap_or(Path::new(".")), flags, Mode::empty())?;
        let flags = OFlag::O_WRONLY
            .union(OFlag::O_CREAT)
            .union(OFlag::O_EXCL)
            .union(OFlag::O_CLOEXEC);
        let private_mode = Mode::S_IRUSR.union(Mode::S_IWUSR);
        let mut attempts = 0;
        loop {
            attempts += 1;
            let random_number = RandomState::new().hash_one(attempts);
            let temporary_name = format!("{TEMPORARY_NAME_PREFIX}{random_number:016x}");
            match openat(&dir_fd, temporary_name.as_str(), flags, private_mode) {
                Ok(file) => {
                    return Ok(FileReplacement {
                        dir_fd,
                        target_name,
                        temporary_name: Some(temporary_name),
                        file: file.into(),
                    });
                }
                Err(Errno::EEXIST) if attempts < MAX_NAME_ATTEMPTS => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Returns the temporary file, to which the caller writes the new content.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Renames the temporary file to the name of the old file. Nothing is flushed to disk. After a
    /// power failure, the file can have the old content, the new content, or no content.
    pub fn commit(mut self) -> io::Result<()> {
        self.rename()
    }

    /// Renames the temporary file to the name of the old file. Flushes the content and the
    /// directory to disk, so that the new file survives a power failure.
    pub fn commit_durably(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        self.rename()?;
        match nix::unistd::fsync(&self.dir_fd) {
            // Some file systems return one of these errors because they cannot flush a directory.
            Err(Errno::EINVAL | Errno::EOPNOTSUPP) => Ok(()),
            result => Ok(result?),
        }
    }

    fn rename(&mut self) -> io::Result<()> {
        if let Some(temporary_name) = &self.temporary_name {
            let dir_fd = &self.dir_fd;
            renameat(dir_fd, temporary_name.as_str(), dir_fd, self.target_name)?;
            self.temporary_name = None;
        }
        Ok(())
    }
}

impl Drop for FileReplacement<'_> {
    fn drop(&mut self) {
        if let Some(temporary_name) = self.temporary_name.take() {
            // An error of the removal is ignored, because the caller reports the error that
            // prevented the commit.
            let _ = unlinkat(
                &self.dir_fd,
                temporary_name.as_str(),
                UnlinkatFlags::NoRemoveDir,
            );
        }
    }
}

/// Replaces or creates the file at `path` with this mode and content. A reader sees either the old
/// file or the whole new file, even after a power failure. If a symbolic link is at `path`, the
/// link is replaced and not followed.
///
/// # Errors
/// After an error the old file is unchanged. There is one exception: if only the flush of the
/// directory to disk has failed, the file has the new content.
pub fn replace_file(path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    let mut replacement = FileReplacement::create(path)?;
    let file = replacement.file();
    file.write_all(content)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    replacement.commit_durably()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::thread;

    use nix::unistd::mkfifo;

    use super::*;

    fn list_names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_link_pipe_or_socket_at_the_path_is_replaced_and_not_followed() {
        type CreateObstacle = fn(&Path, &Path);
        let cases: [(&str, CreateObstacle); 5] = [
            ("nothing", |_, _| {}),
            ("a file", |path, _| fs::write(path, "old").unwrap()),
            ("a link", |path, victim| symlink(victim, path).unwrap()),
            ("a pipe", |path, _| mkfifo(path, Mode::S_IRWXU).unwrap()),
            ("a socket", |path, _| {
                drop(UnixListener::bind(path).unwrap())
            }),
        ];
        for (name, create_obstacle) in cases {
            let directory = tempfile::tempdir().unwrap();
            let [path, victim] = ["file", "victim"].map(|name| directory.path().join(name));
            fs::write(&victim, "kept").unwrap();
            create_obstacle(&path, &victim);
            replace_file(&path, 0o640, b"new").unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "new", "{name}");
            let metadata = fs::symlink_metadata(&path).unwrap();
            assert!(metadata.is_file(), "{name}");
            assert_eq!(metadata.permissions().mode() & 0o7777, 0o640, "{name}");
            assert_eq!(fs::read_to_string(&victim).unwrap(), "kept", "{name}");
            assert_eq!(list_names(directory.path()), ["file", "victim"], "{name}");
        }
    }

    #[test]
    fn a_directory_is_not_replaced_and_no_new_file_remains() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::create_dir(&path).unwrap();
        replace_file(&path, 0o644, b"new").unwrap_err();
        assert_eq!(list_names(directory.path()), ["file"]);
        replace_file(Path::new("/"), 0o644, b"new").unwrap_err();
        replace_file(&directory.path().join("no/file"), 0o644, b"new").unwrap_err();
    }

    /// One process was killed during a replacement, and eight threads replace the same file at
    /// the same time.
    #[test]
    fn a_file_of_a_killed_process_does_not_disturb_later_replacements() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let mut interrupted = FileReplacement::create(&path).unwrap();
        interrupted.file().write_all(b"half").unwrap();
        std::mem::forget(interrupted);
        thread::scope(|scope| {
            for number in 0..8 {
                let path = &path;
                scope.spawn(move || {
                    let text = number.to_string().repeat(1000);
                    for _ in 0..20 {
                        replace_file(path, 0o644, text.as_bytes()).unwrap();
                        let text = fs::read_to_string(path).unwrap();
                        assert_eq!(text, text[..1].repeat(1000));
                    }
                });
            }
        });
        let names = list_names(directory.path());
        assert_eq!(names.len(), 2, "{names:?}");
        assert!(names[0].starts_with(TEMPORARY_NAME_PREFIX), "{names:?}");
    }
}
