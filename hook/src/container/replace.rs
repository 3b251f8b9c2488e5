//! Replaces a file of a container atomically. The new file is first written under a temporary name,
//! and then renamed.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::{FileStat, Mode, fchmod};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, unlinkat};

use super::{Error, FileKind, FileName, Handle, Result, WritableDirectory};

/// The maximum number of random names that are tried for a temporary file. After that, the
/// replacement fails. Only an attacker can create files with all these names.
const MAX_NAME_ATTEMPTS: usize = 8;

/// The mode bits that are copied from a replaced file to the new file. The set-user-id,
/// set-group-id and sticky bits are not copied, because the image may be hostile and chooses a part
/// of the new content.
const INHERITED_MODE_BITS: Mode = Mode::from_bits_truncate(0o777);

impl WritableDirectory {
    /// Replaces the file `name` atomically by a new file with the content `bytes`. `old_file` is
    /// the existing file, whose permissions and owner the new file gets. If there is no existing
    /// file, the new file gets the mode `mode`.
    ///
    /// If a process of the container creates a symbolic link with this name at the same time, the
    /// link itself is replaced. The file to which it leads is not changed.
    pub(super) fn replace(
        &self,
        name: FileName<'_>,
        old_file: Option<&Handle>,
        bytes: &[u8],
        mode: Mode,
    ) -> Result<()> {
        if let Some(found_kind) = old_file.map(Handle::kind)
            && found_kind != FileKind::Regular
        {
            return Err(Error::WrongKind {
                path: self.directory().entry_path(name),
                found_kind,
                expected_kind: FileKind::Regular,
            });
        }
        let flags =
            OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_WRONLY;
        let (file, temporary_name) = self.create_temporary_file(name, |temporary_name| {
            openat(self, temporary_name, flags, Mode::S_IRUSR | Mode::S_IWUSR)
        })?;
        match self.write_content(name, file, old_file.map(Handle::stat), bytes, mode) {
            Ok(()) => self.rename_over(&temporary_name, name),
            Err(error) => {
                self.remove_temporary_file(&temporary_name);
                Err(error)
            }
        }
    }

    /// Calls `create` with random file names until it does not fail with EEXIST. Returns the
    /// created file and its name. `name`, the file that will be replaced, is only used in messages.
    pub(super) fn create_temporary_file<T>(
        &self,
        name: FileName<'_>,
        create: impl Fn(&str) -> nix::Result<T>,
    ) -> Result<(T, String)> {
        for _ in 0..MAX_NAME_ATTEMPTS {
            let temporary_name = format!(".boathook-{:016x}", generate_random_number());
            match create(&temporary_name) {
                Ok(file) => return Ok((file, temporary_name)),
                Err(Errno::EEXIST) => {}
                Err(errno) => {
                    let path = self.directory().entry_path(name);
                    return Err(Error::from_creation(
                        "create a file to replace",
                        path,
                        errno,
                    ));
                }
            }
        }
        Err(self
            .directory()
            .system_error("create a file to replace", name, Errno::EEXIST))
    }

    /// Renames a temporary file to `name`. If this fails, removes the temporary file.
    pub(super) fn rename_over(&self, temporary_name: &str, name: FileName<'_>) -> Result<()> {
        renameat(self, temporary_name, self, name.as_os_str()).map_err(|errno| {
            self.remove_temporary_file(temporary_name);
            self.directory().system_error("replace", name, errno)
        })
    }

    fn remove_temporary_file(&self, temporary_name: &str) {
        // An error is ignored, because the caller reports the error for which the file is removed.
        let _ = unlinkat(self, temporary_name, UnlinkatFlags::NoRemoveDir);
    }

    fn write_content(
        &self,
        name: FileName<'_>,
        file: OwnedFd,
        old_stat: Option<&FileStat>,
        bytes: &[u8],
        mode: Mode,
    ) -> Result<()> {
        let to_error = |action, errno| self.directory().system_error(action, name, errno);
        let mut file = File::from(file);
        file.write_all(bytes).map_err(|error| {
            let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
            to_error("write", errno)
        })?;
        if let Some(old_stat) = old_stat {
            let (uid, gid) = (
                Uid::from_raw(old_stat.st_uid),
                Gid::from_raw(old_stat.st_gid),
            );
            fchown(file.as_fd(), Some(uid), Some(gid))
                .map_err(|errno| to_error("change the owner of", errno))?;
        }
        let mode = old_stat.map_or(mode, |old_stat| {
            Mode::from_bits_truncate(old_stat.st_mode) & INHERITED_MODE_BITS
        });
        fchmod(file.as_fd(), mode).map_err(|errno| to_error("change the mode of", errno))
    }
}

/// Returns an unpredictable number, so that a process of the container cannot guess the temporary
/// name. The number is the hash of an empty input. The standard library seeds its hash function
/// with random bytes from getrandom(2).
fn generate_random_number() -> u64 {
    RandomState::new().build_hasher().finish()
}
