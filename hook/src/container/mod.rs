//! Reads and changes the files of a container through handles.
//!
//! A path in a container is hostile. Any component may be a symbolic link that leads to the host,
//! or may become one between the check and the use of the path (CVE-2024-0132, CVE-2024-0133,
//! CVE-2024-0134, CVE-2025-23267). So each path is resolved exactly once, inside the container's
//! root, to an `O_PATH` handle. All further operations use handles and single names.
//!
//! A caller first uses [`ContainerNamespace::from_pid`], while this process is still in the host's
//! mount namespace. Then it uses [`ContainerNamespace::enter`], and after that the operations of
//! [`ContainerRoot`] and [`Directory`].
//!
//! [`crate::mount::SourceRoot`] resolves paths of the host in the same way, inside a directory such
//! as `/host`.

mod device;
mod directory;
mod error;
mod file;
mod file_owner;
mod idmap;
mod namespace;
mod parent;
mod policy;
mod process;
mod procfs;
mod replace;
mod root;
mod target;
#[cfg(test)]
mod tests;
mod writable_directory;

pub use device::DeviceAccess;
pub use device::find_device_number;
pub(crate) use directory::Directory;
pub use error::Error;
pub(crate) use file::WritableFile;
pub(crate) use file_owner::FileOwner;
pub use host_files::rooted_path::{FileKind, FileName, Resolver};
pub use host_files::rooted_path::{HANDLE_FLAGS, HANDLE_NOFOLLOW_FLAGS, Handle, Identity, RootDir};
pub(crate) use idmap::{IdMap, IdMapError, ReaderNamespace};
pub use namespace::ContainerNamespace;
pub(crate) use namespace::INITIAL_USER_NAMESPACE_INODE;
pub use parent::Parent;
pub(crate) use policy::{NotWritableReason, WritableDirectory};
pub use process::{ProcessState, is_init_process, read_process_state, read_start_time};
pub use procfs::Procfs;
pub use root::ContainerRoot;
pub(crate) use target::MountTarget;
pub use writable_directory::read_link_target;

/// The result of an operation on a container's files. The error names the path and the reason.
pub type Result<T> = std::result::Result<T, Error>;
