//! Reads the input of an OCI hook: the container's state on stdin, and config.json in the bundle.
//! Fields that the hook does not need are ignored, because new versions of the OCI runtime
//! specification may add fields.

use std::io::{self, Read};
use std::path::Path;

use host_files::json_text;
use host_files::rooted_path::{RegularFile, read_regular_file};
use serde::de::DeserializeOwned;

mod bundle;
pub(crate) mod devices;
pub(crate) mod hooks;
mod masked_paths;
mod state;

pub use bundle::{AttachRequest, BindMountedNode, Bundle, BundleError};
pub(crate) use devices::convert_rules as convert_device_rules;
pub use hooks::{CdiGrant, Hooks};
pub use masked_paths::MaskedPaths;
pub use state::{State, StateError};

/// Opens a regular file, and fails for a file of any other kind. A bundle may belong to another
/// user, who could put a FIFO into it. To read from the FIFO would block the hook.
pub use host_files::rooted_path::open_regular_file as open_regular;

/// Reads all bytes of `source`. Returns `None` if there are more than `max_bytes` bytes.
pub fn read_capped(source: impl Read, max_bytes: usize) -> io::Result<Option<Vec<u8>>> {
    // Most inputs are smaller than 64 KiB, so this capacity avoids a reallocation.
    let mut bytes = Vec::with_capacity(max_bytes.min(64 << 10));
    source.take(max_bytes as u64 + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() <= max_bytes).then_some(bytes))
}

/// Reads the regular file `path`. Returns `None` if it has more than `max_bytes` bytes. Fails if
/// the file is of another kind, such as a FIFO.
pub(crate) fn read_file_capped(path: &Path, max_bytes: usize) -> io::Result<Option<Vec<u8>>> {
    let bytes = RegularFile::open(path)?.read(max_bytes as u64 + 1)?;
    Ok((bytes.len() <= max_bytes).then_some(bytes))
}

/// Reads the JSON file `path`. Returns `None` if it is not a regular file, is not valid JSON, or is
/// larger than 16 MiB.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let text = read_regular_file(path, 16 << 20).ok()?;
    json_text::parse(&text).ok()
}
