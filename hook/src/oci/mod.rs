//! A hook's input: the State on stdin, and the bundle's config.json. Both are
//! foreign formats: only what is needed is parsed, and everything else is
//! ignored.

use std::io::{self, Read};
use std::path::Path;

use rooted_path::read_regular_file;
use serde::de::DeserializeOwned;

mod bundle;
pub(crate) mod devices;
pub(crate) mod hooks;
mod state;

pub use bundle::{Attached, Bundle, BundleError};
pub(crate) use devices::rules as device_rules;
pub use hooks::{CdiGrant, Hooks};
pub use state::{State, StateError};

/// Another user may own the directory of a bundle: a pipe in the place of its file is an error,
/// and is not waited for.
pub(crate) use rooted_path::open_regular_file as open_regular;

/// All of `from`; `None` if that is more than `limit` bytes.
pub(crate) fn capped(from: impl Read, limit: usize) -> io::Result<Option<Vec<u8>>> {
    // Room for most files in one read.
    let mut bytes = Vec::with_capacity(limit.min(64 << 10));
    from.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() <= limit).then_some(bytes))
}

/// What a regular file has, unless it is another, not JSON or larger than 16 MiB.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let text = read_regular_file(path, 16 << 20).ok()?;
    json_text::parse(&text).ok()
}
