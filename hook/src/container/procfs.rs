//! Reads the host's `/proc` through handles.
//!
//! After this process has entered a container's mount namespace with setns(2), the path `/proc`
//! leads to a file of the container, which may be hostile. So `/proc` is opened before setns(2),
//! and its file system is checked. The handles show the current state of this process: after
//! setns(2), `mountinfo` lists the mounts of the container.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use nix::unistd::fchdir;

use super::{Error, HANDLE_FLAGS, Result};
use crate::mountinfo::MountLine;
use crate::sys::statmount;

/// The maximum size of `/proc/PID/mountinfo` in bytes. It is enough for about 200,000 mounts.
const MAX_MOUNTINFO_BYTES: u64 = 64 << 20;

const MAX_FDINFO_BYTES: u64 = 64 << 10;

/// Open handles on the directories `/proc`, `/proc/self` and `/proc/self/fd` of the host.
#[derive(Debug)]
pub struct Procfs {
    proc_dir: OwnedFd,
    self_dir: OwnedFd,
    fd_dir: OwnedFd,
}

impl Procfs {
    /// Opens `/proc` in the current mount namespace, which must still be the host's. Fails if
    /// `/proc` is not a proc file system.
    pub(crate) fn open() -> Result<Self> {
        let flags = HANDLE_FLAGS | OFlag::O_DIRECTORY;
        let open_error = |path: &str, errno| Error::system("open", path, errno);
        let proc_dir =
            open("/proc", flags, Mode::empty()).map_err(|errno| open_error("/proc", errno))?;
        let file_system = fstatfs(&proc_dir).map_err(|errno| open_error("/proc", errno))?;
        if file_system.filesystem_type() != PROC_SUPER_MAGIC {
            return Err(Error::ProcfsNotMounted);
        }
        let self_dir = openat(&proc_dir, "self", flags, Mode::empty())
            .map_err(|errno| open_error("/proc/self", errno))?;
        let fd_dir = openat(&self_dir, "fd", flags, Mode::empty())
            .map_err(|errno| open_error("/proc/self/fd", errno))?;
        Ok(Self {
            proc_dir,
            self_dir,
            fd_dir,
        })
    }

    /// Opens the directory `/proc/PID` of the process `pid`. After that process has ended, reads
    /// through the handle fail. The handle never leads to a later process with the same id.
    pub(super) fn open_process(&self, pid: i32) -> Result<OwnedFd> {
        let name = pid.to_string();
        openat(
            &self.proc_dir,
            name.as_str(),
            HANDLE_FLAGS | OFlag::O_DIRECTORY,
            Mode::empty(),
        )
        .map_err(|errno| Error::system("open", Path::new("/proc").join(name), errno))
    }

    /// Opens the file of an `O_PATH` handle again with `flags`, so that the file can be read or
    /// written. `path` is only used in messages.
    pub(super) fn reopen(&self, handle: impl AsFd, flags: OFlag, path: &Path) -> Result<OwnedFd> {
        let fd_number = handle.as_fd().as_raw_fd().to_string();
        openat(
            &self.fd_dir,
            fd_number.as_str(),
            flags | OFlag::O_CLOEXEC,
            Mode::empty(),
        )
        .map_err(|errno| Error::system("open", path, errno))
    }

    /// Makes `/proc/self/fd` the working directory. After that, the number of a descriptor, such as
    /// `7`, is a relative path of its open file. mount(2) and umount2(2) take only paths, so this
    /// is the only way to pass open files to them.
    pub(crate) fn enter_fd_directory(&self) -> Result<()> {
        fchdir(&self.fd_dir)
            .map_err(|errno| Error::system("change directory to", "/proc/self/fd", errno))
    }

    /// Returns the id of the mount that contains `file`. It is the first field of the mount's line
    /// in `mountinfo`.
    pub(crate) fn read_mount_id(&self, file: impl AsFd) -> Result<u64> {
        if let Ok(Some(id)) = statmount::query_mount_id(&file, statmount::STATX_MNT_ID) {
            return Ok(id);
        }
        let name = format!("fdinfo/{}", file.as_fd().as_raw_fd());
        let text = self.read(&name, MAX_FDINFO_BYTES)?;
        parse_mount_id(&text).ok_or_else(|| {
            Error::system(
                "find the mount id in",
                Path::new("/proc/self").join(name),
                Errno::EINVAL,
            )
        })
    }

    /// Reports whether the mount that contains `file` is mounted directly on the mount that
    /// contains `parent_file`, with no other mount in between.
    pub(super) fn is_mounted_on(&self, file: impl AsFd, parent_file: impl AsFd) -> Result<bool> {
        if let Ok(Some(is_mounted)) = query_is_mounted_on(&file, &parent_file) {
            return Ok(is_mounted);
        }
        let (mount_id, parent_id) = (self.read_mount_id(file)?, self.read_mount_id(parent_file)?);
        let text = self.read_mountinfo()?;
        let mut lines = text
            .split(|byte| *byte == b'\n')
            .filter_map(MountLine::split);
        Ok(lines.any(|line| (line.id, line.parent_id) == (mount_id, parent_id)))
    }

    /// Reads `/proc/self/mountinfo`, which lists all mounts of the current mount namespace: after
    /// setns(2), those of the container.
    pub(crate) fn read_mountinfo(&self) -> Result<Vec<u8>> {
        self.read("mountinfo", MAX_MOUNTINFO_BYTES)
    }

    pub(crate) fn self_dir(&self) -> &OwnedFd {
        &self.self_dir
    }

    fn read(&self, name: &str, max_bytes: u64) -> Result<Vec<u8>> {
        read_proc(&self.self_dir, name, max_bytes, || {
            Path::new("/proc/self").join(name)
        })
    }
}

/// Answers the question of [`Procfs::is_mounted_on`] with statmount(2), which is faster than
/// reading the list of all mounts. Returns `None` before Linux 6.8, because older kernels have no
/// unique mount ids.
fn query_is_mounted_on(file: impl AsFd, parent_file: impl AsFd) -> nix::Result<Option<bool>> {
    let query_unique_id = |file| statmount::query_mount_id(file, statmount::STATX_MNT_ID_UNIQUE);
    Ok(
        match (
            query_unique_id(file.as_fd())?,
            query_unique_id(parent_file.as_fd())?,
        ) {
            (Some(mount_id), Some(parent_id)) => {
                Some(statmount::query_mount(mount_id)?.parent_id == parent_id)
            }
            _ => None,
        },
    )
}

/// Reads at most `max_bytes` bytes of the file `name` in `directory`, a directory of `/proc`.
/// `path` returns the path of the file for error messages.
pub(super) fn read_proc(
    directory: impl AsFd,
    name: &str,
    max_bytes: u64,
    path: impl Fn() -> PathBuf,
) -> Result<Vec<u8>> {
    let fd = openat(
        directory,
        name,
        OFlag::O_RDONLY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )
    .map_err(|errno| Error::system("open", path(), errno))?;
    // Most files of `/proc` have fewer than 4096 bytes, so a single read(2) gets all of their
    // content.
    let mut bytes = Vec::with_capacity(4096);
    File::from(fd)
        .take(max_bytes)
        .read_to_end(&mut bytes)
        .map_err(|error| {
            let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
            Error::system("read", path(), errno)
        })?;
    Ok(bytes)
}

/// Returns the value after `mnt_id:` in the content of `/proc/PID/fdinfo/FD` (Linux 3.15,
/// proc_pid_fdinfo(5)).
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
        let procfs = Procfs::open().unwrap();
        let handle = open("/proc/self", HANDLE_FLAGS, Mode::empty()).unwrap();
        let name = format!("fdinfo/{}", handle.as_raw_fd());
        let text = procfs.read(&name, MAX_FDINFO_BYTES).unwrap();
        assert_eq!(
            parse_mount_id(&text),
            Some(procfs.read_mount_id(&handle).unwrap())
        );
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
