//! The paths that config.json hides from a container or protects from changes.

use std::path::PathBuf;

/// The paths that the runtime covers or makes read-only after its hooks have run (OCI runtime
/// specification, "Masked Paths" and "Readonly Paths"), so that mounts of a hook below a masked
/// path are not visible.
#[derive(Debug, Clone, Default)]
pub struct MaskedPaths {
    pub masked: Vec<PathBuf>,
    pub read_only: Vec<PathBuf>,
    /// The paths that `boathook-runtime` has taken out of config.json. The hook masks them, and
    /// shows only files and directories of the plan there.
    pub covered_by_hook: Vec<PathBuf>,
}
