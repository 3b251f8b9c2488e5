//! Opens the devices of the container that this program runs in, for `helm test`.
//!
//! The kubelet allocates a device, the engine calls the hook, and the hook adds the device's nodes
//! and rules. To open each node shows that all of this works, because the kernel refuses to open
//! a node without a rule, or without its driver.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

/// The names in `/dev` that each container has (OCI runtime specification, "Default Devices", and
/// the terminals of engines).
const DEFAULT_NAMES: [&str; 12] = [
    "null", "zero", "full", "random", "urandom", "tty", "console", "ptmx", "pts", "mqueue", "shm",
    "fd",
];
/// The maximum number of directories below each other in which nodes are searched.
const MAX_DEPTH: usize = 8;

/// The result for one device node.
#[derive(Debug)]
pub struct OpenedDevice {
    pub path: PathBuf,
    /// The reason why the device does not work. `None` means that it was opened, or that it is in
    /// use.
    pub fault: Option<io::Error>,
}

/// Opens every device node below `directory`, except for those that each container has.
///
/// # Errors
/// A directory cannot be read, or there is no device node.
pub fn open_devices(directory: &Path) -> anyhow::Result<Vec<OpenedDevice>> {
    let mut nodes = Vec::new();
    collect_nodes(directory, 0, &mut nodes)?;
    nodes.sort();
    ensure!(
        !nodes.is_empty(),
        "{} has no device: the pod requests none, or its devices were not injected",
        directory.display()
    );
    let opened = nodes.into_iter().map(|path| OpenedDevice {
        fault: open_node(&path).err(),
        path,
    });
    Ok(opened.collect())
}

fn collect_nodes(directory: &Path, depth: usize, nodes: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let cannot_read = || format!("cannot read {}", directory.display());
    for entry in fs::read_dir(directory).with_context(cannot_read)? {
        let entry = entry.with_context(cannot_read)?;
        let name = entry.file_name();
        if depth == 0 && DEFAULT_NAMES.iter().any(|default| name == *default) {
            continue;
        }
        let kind = entry.file_type().with_context(cannot_read)?;
        if kind.is_char_device() || kind.is_block_device() {
            nodes.push(entry.path());
        } else if kind.is_dir() && depth < MAX_DEPTH {
            collect_nodes(&entry.path(), depth + 1, nodes)?;
        }
    }
    Ok(())
}

/// Opens a node for reading and writing, or in the one way that its driver allows. The call never
/// waits for the device.
fn open_node(path: &Path) -> io::Result<()> {
    let ways = [OFlag::O_RDWR, OFlag::O_RDONLY, OFlag::O_WRONLY];
    let mut result = Ok(());
    for way in ways {
        let flags = way | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
        match open(path, flags, Mode::empty()) {
            // Another process uses the device, which works then.
            Ok(_) | Err(Errno::EBUSY | Errno::EAGAIN) => return Ok(()),
            Err(errno) if result.is_ok() => result = Err(errno.into()),
            Err(_) => {}
        }
    }
    result
}
