//! What an engine's configuration is to have.

use std::path::PathBuf;

/// What is to be written into an engine's configuration.
#[derive(Debug, Clone)]
pub struct Options {
    /// The hook, as the host sees it: an absolute path.
    pub hook: PathBuf,
    /// The wrapper runtime, as the host sees it: an absolute path.
    pub runtime: PathBuf,
    /// Make the handler the engine's default, so that pods and containers
    /// that name no runtime use it too.
    pub set_default: bool,
    /// The program that `boathook-runtime` calls, if its configuration names one.
    pub real_runtime: Option<PathBuf>,
    /// containerd only: call the hook from this OCI spec (`base_runtime_spec`,
    /// the output of `ctr oci spec`) and leave the runtime alone.
    pub base_spec: Option<String>,
}
