//! The host's files as they would be without us: what every plan starts from.

use std::path::Path;

use crate::docker;
use crate::record::Record;
use crate::snapshot::Snapshot;
use crate::toml_text::{self, OWN_STEM};

/// The snapshot without anything that this program wrote.
///
/// By the record where it fits to the byte, else by our file names and marks.
pub(crate) fn without(now: &Snapshot, record: Option<&Record>) -> Snapshot {
    let mut base = now.clone();
    // What an engine has made of our files by itself is not to be taken apart.
    for (path, text) in now.present().filter(|(path, _)| !now.is_generated(path)) {
        let recorded = record.and_then(|r| r.file(path));
        let text = match recorded {
            Some(file) if file.written.iter().any(|w| w == text) => file.before.clone(),
            _ if is_own(path) => None,
            _ if path.extension().is_some_and(|e| e == "json") => Some(docker::strip(text)),
            _ => toml_text::strip(text),
        };
        base.set(path, text);
    }
    base
}

/// Whether a file is ours by its name.
fn is_own(path: &Path) -> bool {
    path.file_stem().is_some_and(|stem| stem == OWN_STEM)
}
