//! Opens files of the host, and checks their kinds and device numbers.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use device_class::host::{DeviceKind, DeviceNumber};
use host_files::rooted_path;
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid};

use super::{Error, Result};
use crate::container::{
    DeviceAccess, FileKind, Handle, Identity, Resolver, RootDir, find_device_number,
};

/// The host's root directory, or another directory that contains a root file system, such as
/// `/host`, or a driver root with the files of a driver. Paths are resolved inside the directory,
/// and cannot lead out of it.
#[derive(Debug)]
pub struct SourceRoot {
    root_dir: RootDir,
    path: Rc<Path>,
}

impl SourceRoot {
    pub fn open(path: &Path, resolver: Resolver) -> Result<Self> {
        Ok(Self {
            root_dir: RootDir::open(path, resolver).map_err(|error| Error::Host(error.into()))?,
            path: Rc::from(path),
        })
    }

    /// Opens the file `path`. Absolute and relative paths both start at this root. Symbolic links
    /// are followed inside the root, so that no path leads out of it.
    pub fn open_file(&self, path: &Path) -> Result<HostFile> {
        self.to_host_file(self.root_dir.lookup(path), path)
    }

    /// Opens the file `path`. Refuses symbolic links in the whole path, because a user other than
    /// root may have created a link in one of the directories.
    ///
    /// # Errors
    /// The errors of [`Self::open_file`], and an error if a component of the path is a symbolic
    /// link.
    pub fn open_file_without_links(&self, path: &Path) -> Result<HostFile> {
        self.to_host_file(self.root_dir.lookup_no_symlinks(path), path)
    }

    fn to_host_file(
        &self,
        lookup: rooted_path::Result<Option<Handle>>,
        path: &Path,
    ) -> Result<HostFile> {
        match lookup.map_err(|error| Error::Host(error.into()))? {
            Some(handle) => Ok(HostFile {
                handle,
                path: path.to_owned(),
                root_path: Rc::clone(&self.path),
            }),
            None => Err(Error::Missing {
                path: path.to_owned(),
            }),
        }
    }
}

/// An open file of the host, with the path by which it was opened.
#[derive(Debug)]
pub struct HostFile {
    handle: Handle,
    path: PathBuf,
    root_path: Rc<Path>,
}

impl HostFile {
    pub fn kind(&self) -> FileKind {
        self.handle.kind()
    }

    pub fn is_dir(&self) -> bool {
        self.kind() == FileKind::Directory
    }

    pub fn identity(&self) -> Identity {
        self.handle.identity()
    }

    /// Returns the path by which the file was opened, relative to the root in which it was found.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the mode and the owner of the file, so that a new device node in the container can
    /// get the same ones.
    pub fn device_access(&self) -> DeviceAccess {
        let stat = self.handle.stat();
        DeviceAccess {
            mode: Mode::from_bits_truncate(stat.st_mode),
            uid: Uid::from_raw(stat.st_uid),
            gid: Gid::from_raw(stat.st_gid),
        }
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Returns the path of the root in which the file was found, such as `/` or a driver root.
    pub(super) fn root_path(&self) -> &Rc<Path> {
        &self.root_path
    }

    /// Fails unless the file has the kind `expected_kind`, such as a directory.
    pub fn expect_kind(&self, expected_kind: FileKind) -> Result<()> {
        if self.kind() == expected_kind {
            return Ok(());
        }
        Err(Error::UnexpectedFileKind {
            path: self.path.clone(),
            found_kind: self.kind(),
            expected_kind,
        })
    }

    /// Fails unless the file is a device node with the number `expected_number`. The number may
    /// have changed since the scan: a driver that is loaded again can create a node with the same
    /// name for another device.
    pub fn expect_device_number(&self, expected_number: DeviceNumber) -> Result<()> {
        match find_device_number(&self.handle) {
            Some(found_number) if found_number == expected_number => Ok(()),
            Some(found_number) => Err(Error::Device {
                path: self.path.clone(),
                found_number,
                expected_number,
            }),
            None => self.expect_kind(match expected_number.kind {
                DeviceKind::Block => FileKind::BlockDevice,
                DeviceKind::Character => FileKind::CharDevice,
            }),
        }
    }
}

impl AsFd for HostFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NULL: DeviceNumber = DeviceNumber {
        kind: DeviceKind::Character,
        major: 1,
        minor: 3,
    };

    fn host(resolver: Resolver) -> SourceRoot {
        SourceRoot::open(Path::new("/"), resolver).unwrap()
    }

    #[test]
    fn devices_are_distinguished_by_number() {
        for resolver in [Resolver::Openat2, Resolver::Walk] {
            let file = host(resolver)
                .open_file_without_links(Path::new("/dev/null"))
                .unwrap();
            assert_eq!(file.kind(), FileKind::CharDevice);
            file.expect_device_number(NULL).unwrap();

            let error = file.expect_device_number(DeviceNumber { minor: 5, ..NULL });
            assert_eq!(
                error.unwrap_err().to_string(),
                "/dev/null is device c 1:3 on the host, expected c 1:5"
            );
            let error = file.expect_kind(FileKind::Regular);
            assert_eq!(
                error.unwrap_err().to_string(),
                "/dev/null is a character device on the host, expected a regular file"
            );
        }
    }

    #[test]
    fn a_directory_is_no_device() {
        let file = host(Resolver::Walk)
            .open_file_without_links(Path::new("dev"))
            .unwrap();
        assert!(file.is_dir());
        assert!(matches!(
            file.expect_device_number(NULL),
            Err(Error::UnexpectedFileKind {
                found_kind: FileKind::Directory,
                expected_kind: FileKind::CharDevice,
                ..
            })
        ));
    }

    #[test]
    fn what_is_not_there_is_named() {
        let error = host(Resolver::Openat2).open_file_without_links(Path::new("/dev/no-such"));
        assert_eq!(
            error.unwrap_err().to_string(),
            "/dev/no-such does not exist on the host"
        );
    }
}
