//! Mounts files of the host into a container, without races.
//!
//! In the host's mount namespace, a file is opened through [`SourceRoot`], checked, and turned into
//! a [`MountSource`]. After [`crate::container::ContainerNamespace::enter`], a [`Mounter`] mounts
//! sources on mount points of the container. All steps use descriptors.
//!
//! On newer kernels ([`SyscallSupport::supports_detached_mounts`]), a source is a detached copy of
//! a mount. It is restricted, for example to read-only, before any process in the container can see
//! it. On older kernels, mount(2) is used with paths in `/proc/self/fd`. The interface is the same
//! in both cases.
//!
//! A mount is refused if it would propagate to another mount namespace, such as that of the host.

mod attributes;
mod bind;
mod detached;
mod error;
mod host;
mod mounter;
mod propagation;
mod source;
mod syscall_support;
mod tmpfs;

pub(crate) use crate::mountinfo::MountInfoError;
pub use attributes::Attributes;
pub use bind::unmount;
pub use error::Error;
pub(crate) use host::HostFile;
pub use host::SourceRoot;
pub use mounter::Mounter;
pub use source::{MountDepth, MountSource};
pub use syscall_support::SyscallSupport;
pub(crate) use tmpfs::StagedTmpfs;
pub use tmpfs::TmpfsOptions;

pub type Result<T> = std::result::Result<T, Error>;
