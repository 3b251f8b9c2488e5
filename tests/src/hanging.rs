//! Mounts a file system that never answers, like a driver that hangs. A process that looks up a
//! name in it sleeps in the kernel until the process is killed or the file system is unmounted.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// The mounted file system, which is unmounted when the value is dropped.
#[derive(Debug)]
pub struct HangingFileSystem {
    at: PathBuf,
    /// The server's end of the FUSE connection. Only the reader reads from it.
    server: File,
    reader: Option<JoinHandle<()>>,
}

/// Returns the reason why such a file system cannot be mounted here, or `None` if it can.
pub fn missing() -> Option<String> {
    let server = File::options().read(true).write(true).open("/dev/fuse");
    let problem = server
        .err()
        .map(|error| format!("needs /dev/fuse: {error}"));
    problem.or_else(|| (!nix::unistd::geteuid().is_root()).then(|| "needs root".to_owned()))
}

impl HangingFileSystem {
    pub fn mount_over(directory: &Path) -> Result<Self> {
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
            server,
            reader: None,
        })
    }

    /// Mounts a file system whose server accepts all requests and does not answer lookups. A
    /// process that looks up a name cannot be killed.
    pub fn taking(directory: &Path) -> Result<Self> {
        let mut hanging = Self::mount_over(directory)?;
        let server = hanging.server.try_clone()?;
        hanging.reader = Some(thread::spawn(move || take(server)));
        Ok(hanging)
    }
}

/// Serves FUSE requests until the file system is unmounted (include/uapi/linux/fuse.h, version
/// 7.31).
fn take(mut server: File) {
    const LOOKUP: u32 = 1;
    const FORGET: u32 = 2;
    const GETATTR: u32 = 3;
    const INIT: u32 = 26;
    const INTERRUPT: u32 = 36;
    const BATCH_FORGET: u32 = 42;
    let mut asked = vec![0; 1 << 20];
    while let Ok(40..) = server.read(&mut asked) {
        let mut fields = asked.chunks_exact(4).skip(1);
        let opcode = fields.next().map_or(0, |field| {
            u32::from_ne_bytes(field.try_into().unwrap_or_default())
        });
        let (error, answer): (i32, Vec<u32>) = match opcode {
            LOOKUP | FORGET | INTERRUPT | BATCH_FORGET => continue,
            // fuse_init_out: the version, and the longest write.
            INIT => (0, [&[7, 31, 0, 0, 0, 4096][..], &[0; 10]].concat()),
            // fuse_attr_out: valid for days; a directory of root's.
            GETATTR => {
                let mut answer = [0; 26];
                (answer[0], answer[4], answer[19], answer[20]) = (1_000_000, 1, 0o40_755, 2);
                (0, answer.to_vec())
            }
            _ => (-libc::ENOSYS, Vec::new()),
        };
        let length = u32::try_from(16 + 4 * answer.len()).unwrap_or_default();
        let mut message = length.to_ne_bytes().to_vec();
        message.extend(error.to_ne_bytes());
        message.extend(&asked[8..16]);
        message.extend(answer.into_iter().flat_map(u32::to_ne_bytes));
        let _ = server.write_all(&message);
    }
}

impl Drop for HangingFileSystem {
    fn drop(&mut self) {
        // All waiting processes get an error, even if the file system is mounted elsewhere too.
        let _ = umount2(&self.at, MntFlags::MNT_DETACH | MntFlags::MNT_FORCE);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}
