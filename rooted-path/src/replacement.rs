//! Replaces files as a whole, so that a reader sees either the old content or the new one.

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

/// The prefix of the names of unfinished files. A file that a killed process has left does not
/// disturb later replacements, because each replacement uses a new random name.
pub const UNFINISHED_PREFIX: &str = ".boathook-";

/// The number of random names that are tried. If all of them exist, the last error is returned.
const ATTEMPTS: usize = 8;

/// A new file in the directory of the file that it is going to replace. If the value is dropped
/// before the new file is put in place, the new file is removed.
#[derive(Debug)]
pub struct FileReplacement<'a> {
    directory: OwnedFd,
    name: &'a OsStr,
    unfinished: Option<String>,
    file: File,
}

impl<'a> FileReplacement<'a> {
    /// Creates an empty file with mode 0600 in the directory of `path`. `O_EXCL` makes sure
    /// that no existing file is opened and no symbolic link is followed.
    pub fn create(path: &'a Path) -> io::Result<Self> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let flags = OFlag::O_RDONLY
            .union(OFlag::O_DIRECTORY)
            .union(OFlag::O_CLOEXEC);
        let directory = open(parent.unwrap_or(Path::new(".")), flags, Mode::empty())?;
        let flags = OFlag::O_WRONLY
            .union(OFlag::O_CREAT)
            .union(OFlag::O_EXCL)
            .union(OFlag::O_CLOEXEC);
        let private = Mode::S_IRUSR.union(Mode::S_IWUSR);
        let mut attempts = 0;
        loop {
            attempts += 1;
            let random = RandomState::new().hash_one(attempts);
            let unfinished = format!("{UNFINISHED_PREFIX}{random:016x}");
            match openat(&directory, unfinished.as_str(), flags, private) {
                Ok(file) => {
                    return Ok(FileReplacement {
                        directory,
                        name,
                        unfinished: Some(unfinished),
                        file: file.into(),
                    });
                }
                Err(Errno::EEXIST) if attempts < ATTEMPTS => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Returns the new file, so that the caller can write it.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Renames the new file to its final name, without waiting for the disk.
    pub fn put_in_place(mut self) -> io::Result<()> {
        self.rename()
    }

    /// Renames the new file to its final name, and flushes the content and the directory to
    /// disk, so that the file survives a power cut.
    pub fn put_in_place_durably(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        self.rename()?;
        match nix::unistd::fsync(&self.directory) {
            // Some file systems cannot flush a directory and return one of these errors.
            Err(Errno::EINVAL | Errno::EOPNOTSUPP) => Ok(()),
            flushed => Ok(flushed?),
        }
    }

    fn rename(&mut self) -> io::Result<()> {
        if let Some(unfinished) = &self.unfinished {
            let directory = &self.directory;
            renameat(directory, unfinished.as_str(), directory, self.name)?;
            self.unfinished = None;
        }
        Ok(())
    }
}

impl Drop for FileReplacement<'_> {
    fn drop(&mut self) {
        if let Some(unfinished) = self.unfinished.take() {
            // An error of this cleanup is ignored: the caller reports the error because of
            // which the replacement was dropped.
            let _ = unlinkat(
                &self.directory,
                unfinished.as_str(),
                UnlinkatFlags::NoRemoveDir,
            );
        }
    }
}

/// Replaces the file at `path`, or creates it, with this content and mode. A symbolic link at
/// `path` is replaced, not followed.
///
/// # Errors
/// After an error the old file is unchanged, with one exception: if only flushing the directory
/// to disk failed, the new file is in place.
pub fn replace_file(path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    let mut replacement = FileReplacement::create(path)?;
    let file = replacement.file();
    file.write_all(content)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    replacement.put_in_place_durably()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::thread;

    use nix::unistd::mkfifo;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_in_the_place_of_a_file_is_replaced_and_not_followed() {
        type Place = fn(&Path, &Path);
        let cases: [(&str, Place); 5] = [
            ("nothing", |_, _| {}),
            ("a file", |path, _| fs::write(path, "old").unwrap()),
            ("a link", |path, victim| symlink(victim, path).unwrap()),
            ("a pipe", |path, _| mkfifo(path, Mode::S_IRWXU).unwrap()),
            ("a socket", |path, _| {
                drop(UnixListener::bind(path).unwrap())
            }),
        ];
        for (name, place) in cases {
            let directory = tempfile::tempdir().unwrap();
            let [path, victim] = ["file", "victim"].map(|name| directory.path().join(name));
            fs::write(&victim, "kept").unwrap();
            place(&path, &victim);
            replace_file(&path, 0o640, b"new").unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "new", "{name}");
            let metadata = fs::symlink_metadata(&path).unwrap();
            assert!(metadata.is_file(), "{name}");
            assert_eq!(metadata.permissions().mode() & 0o7777, 0o640, "{name}");
            assert_eq!(fs::read_to_string(&victim).unwrap(), "kept", "{name}");
            assert_eq!(names(directory.path()), ["file", "victim"], "{name}");
        }
    }

    #[test]
    fn a_directory_stays_and_nothing_is_left_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::create_dir(&path).unwrap();
        replace_file(&path, 0o644, b"new").unwrap_err();
        assert_eq!(names(directory.path()), ["file"]);
        replace_file(Path::new("/"), 0o644, b"new").unwrap_err();
        replace_file(&directory.path().join("no/file"), 0o644, b"new").unwrap_err();
    }

    /// One process was killed during a replacement, and others replace the same file at once.
    #[test]
    fn unfinished_files_are_in_nobodys_way() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let mut left = FileReplacement::create(&path).unwrap();
        left.file().write_all(b"half").unwrap();
        std::mem::forget(left);
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
        let names = names(directory.path());
        assert_eq!(names.len(), 2, "{names:?}");
        assert!(names[0].starts_with(UNFINISHED_PREFIX), "{names:?}");
    }
}
