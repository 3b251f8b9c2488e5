//! Short fingerprints, for cache keys and to compare contents.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::Path;

/// A fingerprint of bytes: 16 hexadecimal digits. Not proof against intent, and
/// comparable only between programs of one build.
pub fn of_bytes(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// The fingerprint of a file's contents.
pub fn of_file(path: &Path) -> io::Result<String> {
    fs::read(path).map(|bytes| of_bytes(&bytes))
}

/// A fingerprint of many parts, each distinguished from its neighbours.
pub fn of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hasher = DefaultHasher::new();
    for part in parts {
        part.hash(&mut hasher);
    }
    format!("{:016x}", hasher.finish())
}
