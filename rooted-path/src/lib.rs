//! Paths below a root directory, resolved by handles that never leave it.
//!
//! A root is another system's `/`: a container's, or a host's that is mounted in a
//! container. Every symbolic link is followed inside it. The result is a handle
//! (`O_PATH`) on what was found, so that no path is resolved a second time.
//!
//! [`RootDir::lookup`] takes one call of the kernel where it has `openat2`. [`Walk`]
//! goes name by name, for kernels without the call, and for callers that check each
//! directory and link on the way or create what is missing at the end.
//!
//! Single files of the host are opened by [`open_own_file`] and [`open_regular_file`], and
//! replaced by [`replace_file`].

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests make their own files")
)]

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
pub use handle::{FileKind, HANDLE, HANDLE_NOFOLLOW, Handle, Identity};
pub use owner::is_root_or_this_user;
pub use path::{Name, split_leaf};
pub use regular_file::{
    not_regular, open_lock_file, open_own_file, open_regular_file, read_bounded, read_own_text,
    read_regular_file, read_regular_text,
};
pub use replacement::{FileReplacement, UNFINISHED_PREFIX, replace_file};
pub use root::{Resolver, RootDir};
pub use walk::{LastLink, MAX_LINKS, Resolved, Step, Walk, Waypoint, path_below};
