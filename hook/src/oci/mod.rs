//! A hook's input: the State on stdin, and the bundle's config.json. Both are
//! foreign formats: only what is needed is parsed, and everything else is
//! ignored.

use std::io::{self, Read};

mod bundle;
pub(crate) mod devices;
pub(crate) mod grants;
mod state;

pub use bundle::{Bundle, BundleError};
pub use grants::{CdiGrant, Hooks};
pub use state::{State, StateError};

/// All of `from`; `None` if that is more than `limit` bytes.
pub(crate) fn capped(from: impl Read, limit: usize) -> io::Result<Option<Vec<u8>>> {
    // Room for most files in one read.
    let mut bytes = Vec::with_capacity(limit.min(64 << 10));
    from.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() <= limit).then_some(bytes))
}
