//! The settings that an installation writes into an engine's configuration.

use std::path::PathBuf;

use crate::engine_properties::HANDLER;

/// The settings that an installation writes into an engine's configuration.
#[derive(Debug, Clone)]
pub struct Options {
    /// The absolute path of the hook on the host.
    pub hook_path: PathBuf,
    /// The absolute path of the wrapper, `boathook-runtime`, on the host.
    pub runtime_path: PathBuf,
    /// Further names of Boathook's runtime, such as the name of a vendor's runtime. For each name
    /// the engine gets a runtime or handler, beside [`HANDLER`].
    pub additional_names: Vec<String>,
    /// Whether Boathook's handler becomes the engine's default, so that pods and containers
    /// that name no runtime use it too.
    pub set_default: bool,
    /// The path of the program that `boathook-runtime` calls, if config.toml sets one.
    pub real_runtime_path: Option<PathBuf>,
    /// For containerd only: the text of an OCI specification (the output of `ctr oci spec`).
    /// The hook is added to it, and containerd uses it as `base_runtime_spec`. The handler then
    /// keeps the program of the default runtime.
    pub base_spec: Option<String>,
}

impl Options {
    /// Returns all names of Boathook's runtime, first the usual one ([`HANDLER`]).
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let additional_names = self.additional_names.iter().map(String::as_str);
        std::iter::once(HANDLER).chain(additional_names)
    }
}
