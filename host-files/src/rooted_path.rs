//! Resolves paths below a root directory. No path leads out of the root.
//!
//! A root is the `/` of another system: the root of a container, or the root of a host that is
//! mounted in a container. Every symbolic link is followed inside the root. The result is a handle
//! (`O_PATH`) on the file, so the path need not be resolved again.
//!
//! If the kernel has `openat2`, [`RootDir::lookup`] needs only one system call. [`Walk`] opens one
//! name at a time. It is for kernels without `openat2`. It is also for callers that check each
//! directory and link on the way, or that create the missing names at the end of the path.
//!
//! [`open_own_file`] and [`open_regular_file`] open single files of the host. [`replace_file`]
//! replaces a file.

mod error;
mod handle;
mod owner;
mod path;
mod regular_file;
mod replacement;
mod root;
#[cfg(test)]
mod tests;
mod walk;

pub use error::{Error, Result};
pub use handle::{FileKind, HANDLE_FLAGS, HANDLE_NOFOLLOW_FLAGS, Handle, Identity};
pub use owner::is_root_or_this_user;
pub use path::{FileName, split_leaf};
pub use regular_file::{
    RegularFile, not_regular_error, open_lock_file, open_own_file, open_regular_file, read_bounded,
    read_own_text, read_regular_file, read_regular_text,
};
pub use replacement::{FileReplacement, TEMPORARY_NAME_PREFIX, replace_file};
pub use root::{Resolver, RootDir};
pub use walk::{
    MAX_LINKS, OpenedComponent, ResolvedPath, TrailingSymlink, Walk, WalkStep, join_component_names,
};
