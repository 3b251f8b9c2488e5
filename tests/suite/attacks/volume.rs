//! A directory of the host that a container has as a volume.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use harness::bundle::{Bundle, BundleBuilder};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use tempfile::TempDir;

use crate::tree::{assert_unchanged, listing};

/// The path of the volume in a container.
pub(super) const DATA: &str = "/data";

/// Contents that only root may read.
pub(super) const SECRET: &str = "what only root may read";

/// Every file that the hook may write in an image, by itself and below the
/// directories in which it is.
const FILES: [&str; 14] = [
    "libdummy-npu.so.1",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d/00-boathook.conf",
    "00-boathook.conf",
    "ld-musl-x86_64.path",
    "npu-tool",
    "npu.conf",
    "shadow",
    "etc/ld.so.cache",
    "etc/ld.so.conf",
    "etc/ld.so.conf.d/00-boathook.conf",
    "etc/ld-musl-x86_64.path",
    "etc/npu.conf",
];

/// Every directory that it may make or mount on.
const DIRECTORIES: [&str; 6] = [
    "boathook/lib",
    "lib/boathook/lib",
    "usr/lib/boathook/lib",
    "npu",
    "lib/npu",
    "var/lib/npu",
];

/// A volume that anyone may write to. Its files are root's, mode 0600.
pub(super) struct Volume {
    directory: TempDir,
    before: Vec<String>,
}

impl Volume {
    /// With everything in it that the hook may write elsewhere.
    pub(super) fn full() -> Self {
        Self::with(&FILES, &DIRECTORIES)
    }

    /// With nothing in it.
    pub(super) fn empty() -> Self {
        Self::with(&[], &[])
    }

    /// As [`Self::full`], and it will do as a container's /dev.
    pub(super) fn with_nodes() -> Self {
        let mut volume = Self::with(&FILES, &DIRECTORIES);
        let top = volume.path();
        for (name, minor) in [
            ("null", 3),
            ("zero", 5),
            ("full", 7),
            ("random", 8),
            ("urandom", 9),
        ] {
            let mode = Mode::from_bits_truncate(0o666);
            mknod(&top.join(name), SFlag::S_IFCHR, mode, makedev(1, minor)).unwrap();
        }
        volume.before = listing(top);
        volume
    }

    pub(super) fn with(files: &[&str], directories: &[&str]) -> Self {
        let directory = harness::scratch::directory("volume").unwrap();
        let top = directory.path();
        fs::set_permissions(top, Permissions::from_mode(0o777)).unwrap();
        for name in directories {
            fs::create_dir_all(top.join(name)).unwrap();
        }
        for name in files {
            let file = top.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, SECRET).unwrap();
            fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        }
        let before = listing(top);
        Self { directory, before }
    }

    /// Returns the path of the volume on the host.
    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Gives it to a container, at [`DATA`].
    pub(super) fn mounted(&self, builder: BundleBuilder) -> BundleBuilder {
        builder.bind(self.path(), DATA)
    }

    #[track_caller]
    pub(super) fn assert_untouched(&self, case: &str) {
        assert_unchanged(self.path(), &self.before, case);
    }
}

/// Replaces the file at `place` of the image by a link.
pub(super) fn put_link(bundle: &Bundle, place: &str, target: &str) {
    let link = bundle.in_rootfs(place);
    fs::create_dir_all(link.parent().unwrap()).unwrap();
    match fs::symlink_metadata(&link) {
        Ok(there) if there.is_dir() => fs::remove_dir_all(&link).unwrap(),
        Ok(_) => fs::remove_file(&link).unwrap(),
        Err(_) => {}
    }
    symlink(target, &link).unwrap();
}
