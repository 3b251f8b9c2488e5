//! Short fingerprints, for cache keys and to compare contents.

use std::fs;
use std::io;
use std::path::Path;

use ring::digest::{Context, SHA256, digest};

/// As much of a sum as a fingerprint has.
const BYTES: usize = 8;

/// The SHA-256 of bytes, in hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    hexadecimal(digest(&SHA256, bytes).as_ref())
}

/// A fingerprint of bytes: 16 hexadecimal digits.
pub fn of_bytes(bytes: &[u8]) -> String {
    hexadecimal(&digest(&SHA256, bytes).as_ref()[..BYTES])
}

/// The fingerprint of a file's contents.
pub fn of_file(path: &Path) -> io::Result<String> {
    fs::read(path).map(|bytes| of_bytes(&bytes))
}

/// A fingerprint of many parts, each distinguished from its neighbours.
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
