//! Reading no more than a bound.

use std::io::{self, Read};

/// Everything that `from` has, or `None` when that is more than `limit` bytes.
pub(crate) fn capped(from: impl Read, limit: usize) -> io::Result<Option<Vec<u8>>> {
    // Room for most files in one read.
    let mut bytes = Vec::with_capacity(limit.min(64 << 10));
    from.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() <= limit).then_some(bytes))
}
