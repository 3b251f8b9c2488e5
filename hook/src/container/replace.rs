//! Replaces a file of a container atomically: a new file is written under a temporary name, and
//! then renamed.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::{FileStat, Mode, fchmod};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, unlinkat};

use super::{Error, FileKind, Handle, Name, Result, WritableDirectory};

/// The maximum number of random names that are tried for a temporary file. That all of them exist
/// can only be an attack.
const MAX_NAME_ATTEMPTS: usize = 8;

/// The bits of the mode that a new file takes over from the file that it replaces. The
/// set-user-id, set-group-id and sticky bits are left out, because a part of the content comes
/// from the image.
const PERMISSIONS: Mode = Mode::from_bits_truncate(0o777);

impl WritableDirectory {
    /// Replaces the file `name` atomically by a new file with the content `bytes`. The new file
    /// has the permissions and the owner of `old`, the existing file. If there is none, its mode
    /// is `mode`.
    ///
    /// If a process of the container creates a symbolic link at `name` at the same time, the
    /// link is replaced and not followed.
    pub(super) fn replace(
        &self,
        name: Name<'_>,
        old: Option<&Handle>,
        bytes: &[u8],
        mode: Mode,
    ) -> Result<()> {
        if let Some(found) = old.map(Handle::kind)
            && found != FileKind::Regular
        {
            return Err(Error::WrongKind {
                path: self.directory().path_of(name),
                found,
                wanted: FileKind::Regular,
            });
        }
        let flags =
            OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_WRONLY;
        let (file, temporary) = self.create_temporary(name, |temporary| {
            openat(self, temporary, flags, Mode::S_IRUSR | Mode::S_IWUSR)
        })?;
        match self.write_content(name, file, old.map(Handle::stat), bytes, mode) {
            Ok(()) => self.rename_over(&temporary, name),
            Err(error) => {
                self.remove_temporary(&temporary);
                Err(error)
            }
        }
    }

    /// Calls `create` with random file names until it does not fail with EEXIST. Returns the
    /// created file and its name. `name` is the name of the file to replace, for messages.
    pub(super) fn create_temporary<T>(
        &self,
        name: Name<'_>,
        create: impl Fn(&str) -> nix::Result<T>,
    ) -> Result<(T, String)> {
        for _ in 0..MAX_NAME_ATTEMPTS {
            let temporary = format!(".boathook-{:016x}", random_number());
            match create(&temporary) {
                Ok(created) => return Ok((created, temporary)),
                Err(Errno::EEXIST) => {}
                Err(errno) => {
                    let path = self.directory().path_of(name);
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
            .system("create a file to replace", name, Errno::EEXIST))
    }

    pub(super) fn rename_over(&self, temporary: &str, name: Name<'_>) -> Result<()> {
        renameat(self, temporary, self, name.as_os_str()).map_err(|errno| {
            self.remove_temporary(temporary);
            self.directory().system("replace", name, errno)
        })
    }

    fn remove_temporary(&self, temporary: &str) {
        // The caller reports an earlier error, so a failure to remove the file is ignored.
        let _ = unlinkat(self, temporary, UnlinkatFlags::NoRemoveDir);
    }

    fn write_content(
        &self,
        name: Name<'_>,
        file: OwnedFd,
        old: Option<&FileStat>,
        bytes: &[u8],
        mode: Mode,
    ) -> Result<()> {
        let system = |action, errno| self.directory().system(action, name, errno);
        let mut file = File::from(file);
        file.write_all(bytes).map_err(|error| {
            let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
            system("write", errno)
        })?;
        if let Some(old) = old {
            let (uid, gid) = (Uid::from_raw(old.st_uid), Gid::from_raw(old.st_gid));
            fchown(file.as_fd(), Some(uid), Some(gid))
                .map_err(|errno| system("change the owner of", errno))?;
        }
        let mode = old.map_or(mode, |old| {
            Mode::from_bits_truncate(old.st_mode) & PERMISSIONS
        });
        fchmod(file.as_fd(), mode).map_err(|errno| system("change the mode of", errno))
    }
}

/// Returns an unpredictable number: the hash of nothing with the random seed of the standard
/// library's hash maps, which comes from getrandom(2).
fn random_number() -> u64 {
    RandomState::new().build_hasher().finish()
}
