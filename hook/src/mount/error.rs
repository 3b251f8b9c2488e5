//! What can go wrong with a mount.

use std::path::PathBuf;

use device_class::host::DeviceNumber;
use nix::errno::Errno;

use super::MountInfoError;
use crate::container::{self, FileKind};

/// Why a source could not be opened, or could not be mounted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused a call.
    #[error("cannot {action} {}: {errno}", path.display())]
    System {
        /// What was tried, in words that go before a path.
        action: &'static str,
        /// The path it was tried on.
        path: PathBuf,
        errno: Errno,
    },
    /// A file of the host could not be opened.
    #[error("on the host: {0}")]
    Host(container::Error),
    /// Something in the container could not be opened.
    #[error("in the container: {0}")]
    Container(container::Error),
    /// A file of the host does not exist.
    #[error("{} does not exist on the host", path.display())]
    Missing {
        /// The path that was requested.
        path: PathBuf,
    },
    /// A file of the host is of another kind than it should be.
    #[error("{} is {found} on the host, expected {wanted}", path.display())]
    Kind {
        /// The path that was requested.
        path: PathBuf,
        found: FileKind,
        /// What it should be.
        wanted: FileKind,
    },
    /// A device node of the host represents another device than it should.
    #[error("{} is device {found} on the host, expected {wanted}", path.display())]
    Device {
        /// The path that was requested.
        path: PathBuf,
        /// The device that the node represents.
        found: DeviceNumber,
        /// The device that was expected.
        wanted: DeviceNumber,
    },
    /// The mount would spread to other mount namespaces.
    #[error(
        "{} lies in a mount with shared propagation: what is mounted there would appear on the \
         host as well; start the container with private or slave propagation (rootfsPropagation, \
         or mountPropagation of the volume)",
        path.display()
    )]
    Shared {
        /// The path of the target.
        path: PathBuf,
    },
    /// The mount that the target is in is not in this namespace's list.
    #[error(
        "the mount that {} lies in is not attached in the container's mount namespace",
        path.display()
    )]
    NotAttached {
        /// The path of the target.
        path: PathBuf,
    },
    /// The kernel's list of mounts cannot be understood.
    #[error("/proc/self/mountinfo: {0}")]
    MountInfo(MountInfoError),
    /// A path of the host leads to another file in the container's namespace.
    #[error(
        "{} is not the file in the container's mount namespace that it was on the host: it was \
         replaced in the meantime, or the namespace has no copy of the host's mounts",
        path.display()
    )]
    Changed {
        /// The path that was requested.
        path: PathBuf,
    },
    /// A file was deleted on its way: the kernel mounts no such file, and
    /// nothing on one.
    #[error(
        "{} or {} was deleted during the mount: start the container again",
        from.display(),
        to.display()
    )]
    Removed {
        /// The path of the source.
        from: PathBuf,
        /// The path of the target.
        to: PathBuf,
    },
    /// After mounting, something else than the mount was found at the target.
    #[error("{} was replaced while something was mounted on it", path.display())]
    Exchanged {
        /// The path of the target.
        path: PathBuf,
    },
    /// This kernel cannot restrict mounts below the one that is mounted.
    #[error(
        "{} has other mounts below it, which kernels before 5.12 cannot restrict along with it: \
         leave them out, or mount without restrictions",
        path.display()
    )]
    Submounts {
        /// The path of the source.
        path: PathBuf,
    },
    /// An option of a file system holds what mount(2) cannot take.
    #[error("the mount label {label:?} contains an invalid character")]
    Label {
        /// The label as given.
        label: String,
    },
}
