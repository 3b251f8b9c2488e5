//! The errors of opening files of the host and of mounting them in a container.

use std::path::{Path, PathBuf};

use device_class::host::DeviceNumber;
use nix::errno::Errno;

use super::MountInfoError;
use crate::container::{self, FileKind};

/// An error that occurred when a file of the host was opened, or was mounted in a container.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {action} {}: {errno}", path.display())]
    System {
        action: &'static str,
        path: PathBuf,
        errno: Errno,
    },
    #[error("on the host")]
    Host(#[source] container::Error),
    #[error("in the container")]
    Container(#[source] container::Error),
    #[error("{} does not exist on the host", path.display())]
    Missing { path: PathBuf },
    #[error("{} is {found_kind} on the host, expected {expected_kind}", path.display())]
    UnexpectedFileKind {
        path: PathBuf,
        found_kind: FileKind,
        expected_kind: FileKind,
    },
    #[error("{} is device {found_number} on the host, expected {expected_number}", path.display())]
    Device {
        path: PathBuf,
        found_number: DeviceNumber,
        expected_number: DeviceNumber,
    },
    #[error(
        "{} lies in a mount with shared propagation: what is mounted there would appear on the \
         host as well; start the container with private or slave propagation (rootfsPropagation, \
         or mountPropagation of the volume)",
        path.display()
    )]
    Shared { path: PathBuf },
    #[error(
        "the mount that {} lies in is not attached in the container's mount namespace",
        path.display()
    )]
    NotAttached { path: PathBuf },
    #[error("/proc/self/mountinfo")]
    MountInfo(#[source] MountInfoError),
    #[error(
        "{} is not the file in the container's mount namespace that it was on the host: it was \
         replaced in the meantime, or the namespace has no copy of the host's mounts",
        path.display()
    )]
    Changed { path: PathBuf },
    #[error(
        "{} or {} was deleted during the mount: start the container again",
        source_path.display(),
        target_path.display()
    )]
    Removed {
        source_path: PathBuf,
        target_path: PathBuf,
    },
    #[error("{} was replaced while something was mounted on it", path.display())]
    TargetReplaced { path: PathBuf },
    #[error(
        "{} has other mounts below it, which kernels before 5.12 cannot restrict along with it: \
         leave them out, or mount without restrictions",
        path.display()
    )]
    Submounts { path: PathBuf },
    #[error("{}: to mount anything in a container that runs takes Linux 5.2", path.display())]
    KernelTooOld { path: PathBuf },
    #[error("the mount label {label:?} contains an invalid character")]
    Label { label: String },
}

impl Error {
    pub(super) fn system(action: &'static str, path: &Path, errno: Errno) -> Self {
        Self::System {
            action,
            path: path.to_owned(),
            errno,
        }
    }
}
