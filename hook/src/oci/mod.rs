//! A hook's input: the State on stdin, and the bundle's config.json. Both are
//! foreign formats: only what is needed is parsed, and everything else is
//! ignored.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use serde::de::DeserializeOwned;

mod bundle;
pub(crate) mod devices;
pub(crate) mod hooks;
mod state;

pub use bundle::{Attached, Bundle, BundleError};
pub(crate) use devices::rules as device_rules;
pub use hooks::{CdiGrant, Hooks};
pub use state::{State, StateError};

/// Opens a regular file for reading. Another user may own its directory: a pipe in its
/// place is an error, and is not waited for.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file = File::from(open(path, flags, Mode::empty())?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("not a regular file")),
    }
}

/// All of `from`; `None` if that is more than `limit` bytes.
pub(crate) fn capped(from: impl Read, limit: usize) -> io::Result<Option<Vec<u8>>> {
    // Room for most files in one read.
    let mut bytes = Vec::with_capacity(limit.min(64 << 10));
    from.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() <= limit).then_some(bytes))
}

/// What a regular file has, unless it is another, not JSON or larger than 16 MiB.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let text = capped(open_regular(path).ok()?, 16 << 20).ok()??;
    json_text::parse(&text).ok()
}
