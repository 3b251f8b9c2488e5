//! Computes short fingerprints for cache keys and for the comparison of contents.

use std::fs;
use std::io;
use std::path::Path;

use ring::digest::{Context, SHA256, digest};

/// The number of bytes of a SHA-256 hash that a fingerprint has.
const BYTES: usize = 8;

/// Returns the SHA-256 hash of bytes in hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    hexadecimal(digest(&SHA256, bytes).as_ref())
}

/// Returns the fingerprint of bytes, which has 16 hexadecimal digits.
pub fn of_bytes(bytes: &[u8]) -> String {
    hexadecimal(&digest(&SHA256, bytes).as_ref()[..BYTES])
}

/// Returns the fingerprint of a file's content.
pub fn of_file(path: &Path) -> io::Result<String> {
    fs::read(path).map(|bytes| of_bytes(&bytes))
}

/// Returns the fingerprint of a sequence of parts. The boundaries between the parts count.
pub fn of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut sum = Context::new(&SHA256);
    for part in parts {
        sum.update(&part.len().to_le_bytes());
        sum.update(part);
    }
    hexadecimal(&sum.finish().as_ref()[..BYTES])
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
