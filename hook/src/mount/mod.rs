//! Mounts from the host into a container, without races.
//!
//! On the host, a source is opened through [`SourceRoot`], checked, and turned
//! into a [`Source`]. After [`crate::container::ContainerNamespace::enter`], a
//! [`Mounter`] puts sources on targets. All of it uses descriptors.
//!
//! Where the kernel has the calls for it ([`KernelCalls::detached_mounts`]), a
//! source is a copy of the mount, attached nowhere, with its attributes set
//! before anybody in the container can see it. Otherwise `mount` is used on
//! the numbers of descriptors in `/proc/self/fd`. Callers see no difference.
//!
//! Nothing is mounted where it would spread to other namespaces, the host's
//! among them.

mod attributes;
mod bind;
mod calls;
mod detached;
mod error;
mod host;
mod mounter;
mod propagation;
mod source;
mod tmpfs;

pub(crate) use crate::mountinfo::MountInfoError;
pub use attributes::Attributes;
pub(crate) use bind::unmount;
pub use calls::KernelCalls;
pub use error::Error;
pub(crate) use host::HostFile;
pub use host::SourceRoot;
pub use mounter::Mounter;
pub use source::{Depth, Source};
pub(crate) use tmpfs::StagedTmpfs;
pub use tmpfs::TmpfsOptions;

pub type Result<T> = std::result::Result<T, Error>;
