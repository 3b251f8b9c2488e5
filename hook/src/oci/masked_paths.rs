//! Declares the paths that config.json hides from a container or makes read-only.

use std::path::PathBuf;

/// The paths that the runtime hides or makes read-only (OCI runtime specification, "Masked Paths"
/// and "Readonly Paths"). The runtime does this after it has called the hooks, so it also hides
/// files that a hook mounted below a masked path.
#[derive(Debug, Clone, Default)]
pub struct MaskedPaths {
    pub masked: Vec<PathBuf>,
    pub read_only: Vec<PathBuf>,
    /// The masked paths that `boathook-runtime` removed from `linux.maskedPaths` in config.json.
    /// The hook hides them instead of the runtime. Only the files and directories that the hook
    /// injects below them stay visible.
    pub removed_masked_paths: Vec<PathBuf>,
}
