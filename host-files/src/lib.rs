//! Reads, edits and locks files that other programs and users can change, and prints their text
//! safely. Every program of the project uses this crate, also the hook, so it is small.
//!
//! * [`rooted_path`] opens files below a root directory, and opens or replaces single files.
//! * [`json_text`] edits a JSON text without changing any other byte of it.
//! * [`printable`] escapes untrusted text for terminals and logs.
//! * [`release_lock`] lets only one cluster release serve a node.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests make their own files")
)]

pub mod json_text;
pub mod printable;
pub mod release_lock;
pub mod rooted_path;
