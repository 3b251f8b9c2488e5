//! Replacing a file in one step.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::{FileStat, Mode, fchmod};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, unlinkat};

use super::{Directory, Error, FileKind, Handle, Name, Result};

/// How many random names are tried before giving up on a hostile directory.
const ATTEMPTS: usize = 8;

impl Directory {
    /// Gives the name `name` to a new file with the content `bytes`, in one
    /// step. The new file takes mode and owner from `old`, the file that has
    /// the name now; without one it has `mode`.
    ///
    /// The name itself is replaced: a link that somebody puts there in the
    /// meantime is not followed.
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
                path: self.path_of(name),
                found,
                wanted: FileKind::Regular,
            });
        }
        let (temporary, file) = self.create_temporary(name)?;
        let written = self
            .fill(name, file, old.map(Handle::stat), bytes, mode)
            .and_then(|()| {
                renameat(self, temporary.as_str(), self, name.as_os_str())
                    .map_err(|errno| self.system("replace", name, errno))
            });
        if written.is_err() {
            // The first fault is the one to report; if the name is gone, all the better.
            let _ = unlinkat(self, temporary.as_str(), UnlinkatFlags::NoRemoveDir);
        }
        written
    }

    fn create_temporary(&self, name: Name<'_>) -> Result<(String, OwnedFd)> {
        let flags =
            OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_WRONLY;
        for _ in 0..ATTEMPTS {
            let temporary = format!(".boathook-{:016x}", random());
            match openat(
                self,
                temporary.as_str(),
                flags,
                Mode::S_IRUSR | Mode::S_IWUSR,
            ) {
                Ok(fd) => return Ok((temporary, fd)),
                Err(Errno::EEXIST) => {}
                Err(errno) => {
                    let path = self.path_of(name);
                    return Err(Error::creating("create a file to replace", path, errno));
                }
            }
        }
        Err(self.system("create a file to replace", name, Errno::EEXIST))
    }

    fn fill(
        &self,
        name: Name<'_>,
        file: OwnedFd,
        old: Option<&FileStat>,
        bytes: &[u8],
        mode: Mode,
    ) -> Result<()> {
        let mut file = File::from(file);
        file.write_all(bytes).map_err(|error| {
            let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
            self.system("write", name, errno)
        })?;
        // The owner first: changing it takes mode bits away.
        if let Some(old) = old {
            let (uid, gid) = (Uid::from_raw(old.st_uid), Gid::from_raw(old.st_gid));
            fchown(file.as_fd(), Some(uid), Some(gid))
                .map_err(|errno| self.system("change the owner of", name, errno))?;
        }
        let mode = old.map_or(mode, |old| Mode::from_bits_truncate(old.st_mode));
        fchmod(file.as_fd(), mode).map_err(|errno| self.system("change the mode of", name, errno))
    }
}

/// A number that nobody can guess: the seed of the standard library's hash
/// maps comes from the kernel's random source.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
