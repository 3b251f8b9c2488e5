//! Opens the devices of the container that this program runs in. `helm test` runs it in a pod.
//!
//! A device node that opens shows that the kubelet allocated the device, the engine called the
//! hook, and the hook added the node and its device rule: without a rule or a driver the kernel
//! refuses to open the node.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

/// The names in `/dev` that every container has (OCI runtime specification, "Default Devices", and
/// the terminals of engines).
const DEFAULT_NAMES: [&str; 12] = [
    "null", "zero", "full", "random", "urandom", "tty", "console", "ptmx", "pts", "mqueue", "shm",
    "fd",
];
/// The maximum depth of the directories that are searched for nodes.
const MAX_DEPTH: usize = 8;

/// The result for one device node.
#[derive(Debug)]
pub struct OpenedDevice {
    pub path: PathBuf,
    /// The reason why the node cannot be opened. `None` means that it was opened, or that another
    /// process is using the device.
    pub fault: Option<io::Error>,
}

/// Opens every device node below `directory`, except for those that every container has.
///
/// # Errors
/// Returns an error if a directory cannot be read, or if there is no device node.
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

/// Opens a node for reading and writing, or in the one mode that its driver allows. The call never
/// waits for the device.
fn open_node(path: &Path) -> io::Result<()> {
    let ways = [OFlag::O_RDWR, OFlag::O_RDONLY, OFlag::O_WRONLY];
    let mut result = Ok(());
    for way in ways {
        let flags = way | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
        match open(path, flags, Mode::empty()) {
            // Another process is using the device, so the device works.
            Ok(_) | Err(Errno::EBUSY | Errno::EAGAIN) => return Ok(()),
            Err(errno) if result.is_ok() => result = Err(errno.into()),
            Err(_) => {}
        }
    }
    result
}
