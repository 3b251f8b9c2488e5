//! The host's `/proc`, held by handles.
//!
//! After setns(2), the path `/proc` leads to the file that the container's mount namespace has at
//! this path. Before pivot_root that is a copy of the host's, but no code here relies on it. The
//! handles are opened before setns(2), and checked to be on the kernel's proc file system. They
//! show the calling process in its current state: `mountinfo` lists the mounts of the namespace
//! that it has entered.

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

/// The size limit of `mountinfo` in bytes: enough for some hundred thousand mounts.
const MOUNTINFO_CAP: u64 = 64 << 20;

/// The size limit of other files of `/proc` in bytes.
const SMALL_CAP: u64 = 64 << 10;

/// Handles on `/proc` and on the calling process's directory in it.
#[derive(Debug)]
pub(crate) struct Procfs {
    root: OwnedFd,
    own_process: OwnedFd,
    descriptors: OwnedFd,
}

impl Procfs {
    /// Opens `/proc` in the current mount namespace, which must still be that of the host.
    pub(crate) fn open() -> Result<Self> {
        let flags = HANDLE | OFlag::O_DIRECTORY;
        let failed = |path: &str, errno| Error::system("open", path, errno);
        let root = open("/proc", flags, Mode::empty()).map_err(|errno| failed("/proc", errno))?;
        let file_system = fstatfs(&root).map_err(|errno| failed("/proc", errno))?;
        if file_system.filesystem_type() != PROC_SUPER_MAGIC {
            return Err(Error::NotProc);
        }
        let own_process = openat(&root, "self", flags, Mode::empty())
            .map_err(|errno| failed("/proc/self", errno))?;
        let descriptors = openat(&own_process, "fd", flags, Mode::empty())
            .map_err(|errno| failed("/proc/self/fd", errno))?;
        Ok(Self {
            root,
            own_process,
            descriptors,
        })
    }

    /// Opens the directory of process `pid`. If the process ends, the handle never leads to
    /// another process with the same number.
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

    /// Opens the file of an `O_PATH` handle for reading or writing.
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

    /// Makes `/proc/self/fd` the working directory, so that the number of a descriptor is a
    /// path to its file. This is the only way to give a handle to mount(2) and umount2(2).
    pub(crate) fn enter_descriptors(&self) -> Result<()> {
        fchdir(&self.descriptors)
            .map_err(|errno| Error::system("change directory to", "/proc/self/fd", errno))
    }

    /// Returns the id of the mount that `file` is in, as in `mountinfo`.
    pub(crate) fn mount_id(&self, file: impl AsFd) -> Result<u64> {
        if let Ok(Some(id)) = statmount::mount_id(&file, statmount::MOUNT_ID) {
            return Ok(id);
        }
        let name = format!("fdinfo/{}", file.as_fd().as_raw_fd());
        let text = self.read(&name, SMALL_CAP)?;
        parse_mount_id(&text).ok_or_else(|| {
            Error::system(
                "find the mount id in",
                Path::new("/proc/self").join(name),
                Errno::EINVAL,
            )
        })
    }

    /// Returns whether the mount that `file` is in is mounted directly on the mount that
    /// `below` is in.
    pub(super) fn is_mounted_on(&self, file: impl AsFd, below: impl AsFd) -> Result<bool> {
        if let Ok(Some(is_mounted)) = query_is_mounted_on(&file, &below) {
            return Ok(is_mounted);
        }
        let (id, parent) = (self.mount_id(file)?, self.mount_id(below)?);
        let text = self.mountinfo()?;
        let mut lines = text
            .split(|byte| *byte == b'\n')
            .filter_map(MountLine::split);
        Ok(lines.any(|line| (line.id, line.parent) == (id, parent)))
    }

    /// Reads the list of all mounts of the current mount namespace.
    pub(crate) fn mountinfo(&self) -> Result<Vec<u8>> {
        self.read("mountinfo", MOUNTINFO_CAP)
    }

    /// Returns a handle on the directory of the calling process.
    pub(crate) fn own_process(&self) -> &OwnedFd {
        &self.own_process
    }

    fn read(&self, name: &str, cap: u64) -> Result<Vec<u8>> {
        read_proc(&self.own_process, name, cap, || {
            Path::new("/proc/self").join(name)
        })
    }
}

/// Does the same as [`Procfs::is_mounted_on`] by `statmount`. Returns `None` if the kernel has
/// no unique ids of mounts.
fn query_is_mounted_on(file: impl AsFd, below: impl AsFd) -> nix::Result<Option<bool>> {
    let unique = |file| statmount::mount_id(file, statmount::UNIQUE_MOUNT_ID);
    Ok(match (unique(file.as_fd())?, unique(below.as_fd())?) {
        (Some(id), Some(below)) => Some(statmount::query_mount(id)?.parent == below),
        _ => None,
    })
}

/// Reads at most `cap` bytes of the file `name` in a directory of `/proc`.
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
    // Most of these files fit into this buffer and need only one read.
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

/// Returns the value of `mnt_id:` in `/proc/PID/fdinfo/FD` (Linux 3.15, proc_pid_fdinfo(5)).
fn parse_mount_id(fdinfo: &[u8]) -> Option<u64> {
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
        assert_eq!(parse_mount_id(&text), Some(proc.mount_id(&here).unwrap()));
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
            assert_eq!(parse_mount_id(text.as_bytes()), id, "{text:?}");
        }
    }
}
