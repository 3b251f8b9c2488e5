//! File systems for the roots of containers, mounted only in the mount namespace of this program.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use harness::scratch;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use tempfile::TempDir;

/// The size in bytes of an ext4 image. The image is a sparse file.
const SIZE: u64 = 4 << 30;

/// A new, empty file system, which is unmounted when the value is dropped.
pub(crate) struct FileSystem {
    at: TempDir,
    /// The directory with the image of an ext4, kept until the file system is unmounted.
    _image: Option<TempDir>,
}

impl FileSystem {
    pub(crate) fn tmpfs() -> Result<Self> {
        let at = scratch::directory("tmpfs")?;
        let none = None::<&str>;
        mount(
            Some("tmpfs"),
            at.path(),
            Some("tmpfs"),
            MsFlags::empty(),
            none,
        )
        .context("cannot mount a tmpfs")?;
        Ok(Self { at, _image: None })
    }

    /// Creates an ext4 in a file of /var/tmp and mounts it by a loop device.
    pub(crate) fn ext4() -> Result<Self> {
        let directory = scratch::directory("ext4")?;
        let image = directory.path().join("image");
        let file = File::create(&image).context("cannot create the file of an ext4")?;
        file.set_len(SIZE)
            .context("cannot extend the file of an ext4")?;
        succeed(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image))?;
        let at = scratch::directory("mounted-ext4")?;
        let mut mount = Command::new("mount");
        succeed(mount.args(["-o", "loop"]).arg(&image).arg(at.path()))?;
        Ok(Self {
            at,
            _image: Some(directory),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        self.at.path()
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        // A failure is ignored: the mount ends with the mount namespace of this program in any
        // case.
        let _ = umount2(self.at.path(), MntFlags::MNT_DETACH);
    }
}

fn succeed(command: &mut Command) -> Result<()> {
    let program = command.get_program().display().to_string();
    let status = command
        .status()
        .with_context(|| format!("cannot start {program}"))?;
    if !status.success() {
        bail!("{program} failed: {status}");
    }
    Ok(())
}
