//! Answers the questions to the probe, in the container.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use anyhow::Result;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, SFlag, major, makedev, minor, mknod};
use nix::unistd::geteuid;

use super::questions::{NewNode, Questions};
use super::report::{Access, Kind, NodeAttempt, PathReport, Report};
use crate::{fingerprint, mountinfo};

/// The maximum size in bytes of a file whose content is reported.
const SHORT: usize = 4096;

/// Answers the questions. That something is missing or refused is an answer. Only a container
/// without /proc is an error.
pub fn answer(questions: &Questions) -> Result<Report> {
    let paths = questions
        .paths
        .iter()
        .map(|path| (path.clone(), look_at(path)))
        .collect();
    let new_nodes = questions
        .new_nodes
        .iter()
        .map(|node| (node.path.clone(), make(node)))
        .collect();
    Ok(Report {
        uid: geteuid().as_raw(),
        env: environment(),
        mounts: mountinfo::of_self()?,
        paths,
        new_nodes,
    })
}

fn environment() -> BTreeMap<String, String> {
    let lossy = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    std::env::vars_os()
        .map(|(key, value)| (lossy(key), lossy(value)))
        .collect()
}

fn look_at(path: &Path) -> PathReport {
    let metadata = fs::metadata(path).ok();
    let metadata = metadata.as_ref();
    let kind = kind(metadata);
    let contents = (kind == Kind::File).then(|| fs::read(path).ok()).flatten();
    PathReport {
        kind,
        link_target: fs::read_link(path).ok(),
        uid: metadata.map_or(0, MetadataExt::uid),
        gid: metadata.map_or(0, MetadataExt::gid),
        inode: metadata.map_or(0, MetadataExt::ino),
        device: metadata.and_then(|metadata| device_number(kind, metadata)),
        read: open(path, OFlag::O_RDONLY),
        write: open(path, OFlag::O_WRONLY),
        read_write: open(path, OFlag::O_RDWR),
        entries: (kind == Kind::Directory).then(|| entries(path)),
        fingerprint: contents.as_deref().map(fingerprint::of_bytes),
        text: contents
            .filter(|bytes| bytes.len() <= SHORT)
            .and_then(|bytes| String::from_utf8(bytes).ok()),
    }
}

fn kind(metadata: Option<&Metadata>) -> Kind {
    let Some(metadata) = metadata else {
        return Kind::Missing;
    };
    let kind = metadata.file_type();
    if kind.is_file() {
        Kind::File
    } else if kind.is_dir() {
        Kind::Directory
    } else if kind.is_char_device() {
        Kind::CharacterDevice
    } else if kind.is_block_device() {
        Kind::BlockDevice
    } else {
        Kind::Other
    }
}

fn device_number(kind: Kind, metadata: &Metadata) -> Option<(u64, u64)> {
    let number = metadata.rdev();
    let is_device = matches!(kind, Kind::CharacterDevice | Kind::BlockDevice);
    is_device.then(|| (major(number), minor(number)))
}

fn entries(directory: &Path) -> Vec<String> {
    let listing = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<_> = listing
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Creates a device node, opens it, and removes it again.
fn make(node: &NewNode) -> NodeAttempt {
    let number = makedev(node.major, node.minor);
    match mknod(
        &node.path,
        SFlag::S_IFCHR,
        Mode::from_bits_truncate(0o666),
        number,
    ) {
        Err(errno) => NodeAttempt {
            made: refused(errno),
            read: None,
        },
        Ok(()) => {
            let read = open(&node.path, OFlag::O_RDONLY);
            // The /dev of a container is removed with it, so a node that cannot be removed does no
            // harm.
            let _ = fs::remove_file(&node.path);
            NodeAttempt {
                made: Access::Granted,
                read: Some(read),
            }
        }
    }
}

/// Returns whether `path` can be opened with this access mode. The call never waits, and a terminal
/// never becomes the controlling terminal.
fn open(path: &Path, access: OFlag) -> Access {
    let flags = access | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    match nix::fcntl::open(path, flags, Mode::empty()) {
        Ok(_) => Access::Granted,
        Err(errno) => refused(errno),
    }
}

/// Returns the refusal with the name of the error, such as `EPERM`, without its explanation.
fn refused(errno: Errno) -> Access {
    Access::Refused(format!("{errno:?}"))
}
