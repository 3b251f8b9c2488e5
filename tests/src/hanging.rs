//! A file system that never answers, like a driver that hangs: who looks up a name in it
//! sleeps in the kernel until he is killed, or it is taken away.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// The mount, until it is dropped.
#[derive(Debug)]
pub struct Hanging {
    at: PathBuf,
    /// Its FUSE server's end, from which nobody reads.
    _server: File,
}

/// Why there can be none; `None` if there can.
pub fn missing() -> Option<String> {
    let server = File::options().read(true).write(true).open("/dev/fuse");
    let problem = server
        .err()
        .map(|error| format!("needs /dev/fuse: {error}"));
    problem.or_else(|| (!nix::unistd::geteuid().is_root()).then(|| "needs root".to_owned()))
}

impl Hanging {
    /// Mounts it over a directory.
    pub fn over(directory: &Path) -> Result<Self> {
        let server = File::options().read(true).write(true).open("/dev/fuse")?;
        let options = format!(
            "fd={},rootmode=40755,user_id=0,group_id=0,allow_other",
            server.as_raw_fd()
        );
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        let kind = Some("fuse");
        mount(kind, directory, kind, flags, Some(options.as_str()))
            .with_context(|| format!("cannot mount over {}", directory.display()))?;
        Ok(Self {
            at: directory.to_path_buf(),
            _server: server,
        })
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        // With the server's end all who wait get an error.
        let _ = umount2(&self.at, MntFlags::MNT_DETACH);
    }
}
