//! Declares the paths that config.json hides from a container or makes read-only.

use std::path::PathBuf;

/// The paths that the runtime hides or makes read-only (OCI runtime specification, "Masked Paths"
/// and "Readonly Paths"). The runtime does this after its hooks have run, so that a mount of a
/// hook below a masked path is hidden too.
#[derive(Debug, Clone, Default)]
pub struct MaskedPaths {
    pub masked: Vec<PathBuf>,
    pub read_only: Vec<PathBuf>,
    /// The masked paths that `boathook-runtime` has removed from config.json. The hook masks them
    /// instead, so that only the files and directories that it injects there are visible.
    pub masked_by_hook: Vec<PathBuf>,
}
