//! The host's `/proc`, held by handle.
//!
//! After `setns` the path `/proc` means what the container's mount namespace
//! has there. Before pivot_root that is a copy of the host's, but nothing here
//! relies on it: the handles are opened before, checked to be the kernel's
//! proc file system, and used ever after. They show the calling process as it
//! is at the time: `mountinfo` lists the mounts of the namespace entered.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use nix::unistd::fchdir;

use super::{Error, HANDLE, Result};
use crate::mountinfo::MountLine;
use crate::sys::statmount;

/// What is read of `mountinfo` at most: some hundred thousand mounts.
const MOUNTINFO_CAP: u64 = 64 << 20;

/// What is read of other small files of `/proc` at most.
const SMALL_CAP: u64 = 64 << 10;

/// Handles on `/proc` and on the calling process's directory in it.
#[derive(Debug)]
pub(crate) struct Procfs {
    root: OwnedFd,
    this: OwnedFd,
    descriptors: OwnedFd,
}

impl Procfs {
    /// Opens `/proc` in the current mount namespace: the host's.
    pub(crate) fn open() -> Result<Self> {
        let flags = HANDLE | OFlag::O_DIRECTORY;
        let failed = |path: &str, errno| Error::system("open", path, errno);
        let root = open("/proc", flags, Mode::empty()).map_err(|errno| failed("/proc", errno))?;
        let file_system = fstatfs(&root).map_err(|errno| failed("/proc", errno))?;
        if file_system.filesystem_type() != PROC_SUPER_MAGIC {
            return Err(Error::NotProc);
        }
        let this = openat(&root, "self", flags, Mode::empty())
            .map_err(|errno| failed("/proc/self", errno))?;
        let descriptors = openat(&this, "fd", flags, Mode::empty())
            .map_err(|errno| failed("/proc/self/fd", errno))?;
        Ok(Self {
            root,
            this,
            descriptors,
        })
    }

    /// A handle on the directory of process `pid`. If the process ends, the
    /// handle never leads to another of the same number.
    pub(super) fn process(&self, pid: i32) -> Result<OwnedFd> {
        let name = pid.to_string();
        openat(
            &self.root,
            name.as_str(),
            HANDLE | OFlag::O_DIRECTORY,
            Mode::empty(),
        )
        .map_err(|errno| Error::system("open", Path::new("/proc").join(name), errno))
    }

    /// Opens the file behind a handle for use.
    pub(super) fn reopen(&self, handle: impl AsFd, flags: OFlag, path: &Path) -> Result<OwnedFd> {
        let number = handle.as_fd().as_raw_fd().to_string();
        openat(
            &self.descriptors,
            number.as_str(),
            flags | OFlag::O_CLOEXEC,
            Mode::empty(),
        )
        .map_err(|errno| Error::system("open", path, errno))
    }

    /// Makes the directory of descriptors the working directory, so that a
    /// descriptor's number is the path of the file behind it. `mount` and
    /// `umount` take no other handle.
    pub(crate) fn enter_descriptors(&self) -> Result<()> {
        fchdir(&self.descriptors)
            .map_err(|errno| Error::system("change directory to", "/proc/self/fd", errno))
    }

    /// The id of the mount that `file` is in, as in `mountinfo`.
    pub(crate) fn mount_id(&self, file: impl AsFd) -> Result<u64> {
        if let Ok(Some(id)) = statmount::mount_id(&file, statmount::MOUNT_ID) {
            return Ok(id);
        }
        let name = format!("fdinfo/{}", file.as_fd().as_raw_fd());
        let text = self.read(&name, SMALL_CAP)?;
        mount_id_in(&text).ok_or_else(|| {
            Error::system(
                "find the mount id in",
                Path::new("/proc/self").join(name),
                Errno::EINVAL,
            )
        })
    }

    /// Whether the mount that `file` is in is mounted directly on the one that
    /// `below` is in.
    pub(super) fn is_mounted_on(&self, file: impl AsFd, below: impl AsFd) -> Result<bool> {
        if let Ok(Some(is_mounted)) = ask(&file, &below) {
            return Ok(is_mounted);
        }
        let (id, parent) = (self.mount_id(file)?, self.mount_id(below)?);
        let text = self.mountinfo()?;
        let mut lines = text
            .split(|byte| *byte == b'\n')
            .filter_map(MountLine::split);
        Ok(lines.any(|line| (line.id, line.parent) == (id, parent)))
    }

    /// The mounts of the current namespace, as the kernel lists them.
    pub(crate) fn mountinfo(&self) -> Result<Vec<u8>> {
        self.read("mountinfo", MOUNTINFO_CAP)
    }

    /// A handle on the calling process's directory.
    pub(crate) fn this(&self) -> &OwnedFd {
        &self.this
    }

    fn read(&self, name: &str, cap: u64) -> Result<Vec<u8>> {
        read_proc(&self.this, name, cap, || Path::new("/proc/self").join(name))
    }
}

/// The same by `statmount`. None if the kernel does not give a mount's unique id.
fn ask(file: impl AsFd, below: impl AsFd) -> nix::Result<Option<bool>> {
    let unique = |file| statmount::mount_id(file, statmount::UNIQUE_MOUNT_ID);
    Ok(match (unique(file.as_fd())?, unique(below.as_fd())?) {
        (Some(id), Some(below)) => Some(statmount::basic(id)?.parent == below),
        _ => None,
    })
}

/// Reads the file `name` in a directory of `/proc`, of `cap` bytes at most.
pub(super) fn read_proc(
    directory: impl AsFd,
    name: &str,
    cap: u64,
    path: impl Fn() -> PathBuf,
) -> Result<Vec<u8>> {
    let fd = openat(
        directory,
        name,
        OFlag::O_RDONLY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )
    .map_err(|errno| Error::system("open", path(), errno))?;
    // Room for most of these files in one read.
    let mut bytes = Vec::with_capacity(4096);
    File::from(fd)
        .take(cap)
        .read_to_end(&mut bytes)
        .map_err(|error| {
            let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
            Error::system("read", path(), errno)
        })?;
    Ok(bytes)
}

/// The value of `mnt_id:` (Linux 3.15, proc_pid_fdinfo(5)).
fn mount_id_in(fdinfo: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(fdinfo).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("mnt_id:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fdinfo_and_statx_agree_on_the_mount() {
        let proc = Procfs::open().unwrap();
        let here = open("/proc/self", HANDLE, Mode::empty()).unwrap();
        let name = format!("fdinfo/{}", here.as_raw_fd());
        let text = proc.read(&name, SMALL_CAP).unwrap();
        assert_eq!(mount_id_in(&text), Some(proc.mount_id(&here).unwrap()));
    }

    #[test]
    fn a_mount_id_is_read_from_fdinfo() {
        for (text, id) in [
            (
                "pos:\t0\nflags:\t010000000\nmnt_id:\t29\nino:\t5\n",
                Some(29),
            ),
            ("pos:\t0\n", None),
            ("mnt_id:\tx\n", None),
            ("", None),
        ] {
            assert_eq!(mount_id_in(text.as_bytes()), id, "{text:?}");
        }
    }
}
