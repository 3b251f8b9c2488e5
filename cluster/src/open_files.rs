//! The limit of open files, of which each connection is one.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises it to what an unprivileged process may have. Engines start containers with 1,024,
/// for programs that use select(2).
pub(crate) fn raise_limit() {
    let files = Resource::RLIMIT_NOFILE;
    let raised = getrlimit(files).and_then(|(_, most)| setrlimit(files, most, most));
    if let Err(error) = raised {
        tracing::warn!("cannot raise the limit of open files: {error}");
    }
}
