//! The input of a hook: the state on stdin, and config.json of the bundle. Both formats belong
//! to others, so only the needed members are parsed and all other members are ignored.

use std::io::{self, Read};
use std::path::Path;

use rooted_path::{RegularFile, read_regular_file};
use serde::de::DeserializeOwned;

mod bundle;
pub(crate) mod devices;
pub(crate) mod hooks;
mod masked_paths;
mod state;

pub use bundle::{AttachRequest, Bundle, BundleError};
pub(crate) use devices::rules as device_rules;
pub use hooks::{CdiGrant, Hooks};
pub use masked_paths::MaskedPaths;
pub use state::{State, StateError};

/// Another user may own the directory of a bundle. A pipe at the path of a file is therefore
/// an error, and the hook does not wait for its content.
pub(crate) use rooted_path::open_regular_file as open_regular;

/// Reads all of `from`. Returns `None` if it has more than `limit` bytes.
pub(crate) fn read_capped(from: impl Read, limit: usize) -> io::Result<Option<Vec<u8>>> {
    // Most files fit into this buffer and need only one read.
    let mut bytes = Vec::with_capacity(limit.min(64 << 10));
    from.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() <= limit).then_some(bytes))
}

/// Reads a regular file. Returns `None` if it has more than `limit` bytes.
pub(crate) fn read_file_capped(path: &Path, limit: usize) -> io::Result<Option<Vec<u8>>> {
    let bytes = RegularFile::open(path)?.read(limit as u64 + 1)?;
    Ok((bytes.len() <= limit).then_some(bytes))
}

/// Reads a JSON file. Returns `None` if it is not a regular file, not valid JSON, or larger
/// than 16 MiB.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let text = read_regular_file(path, 16 << 20).ok()?;
    json_text::parse(&text).ok()
}
