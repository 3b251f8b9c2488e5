//! The options with which an installation configures an engine.

use std::path::PathBuf;

use crate::engine_properties::RUNTIME_HANDLER_NAME;

/// The options with which an installation configures an engine. The paths are paths of the host,
/// although the installer may run in a container.
#[derive(Debug, Clone)]
pub struct InstallOptions {
    /// The absolute path of the hook on the host.
    pub hook_path: PathBuf,
    /// The absolute path of the wrapper runtime, `boathook-runtime`, on the host.
    pub runtime_path: PathBuf,
    /// More names of Boathook's runtime, such as the name of a vendor's runtime. The engine gets a
    /// runtime or handler with each of these names, in addition to [`RUNTIME_HANDLER_NAME`].
    pub additional_names: Vec<String>,
    /// Whether Boathook's handler becomes the engine's default. Pods and containers that name no
    /// runtime then use it as well.
    pub set_default: bool,
    /// The path of the program that `boathook-runtime` calls. `None` means that config.toml sets no
    /// path.
    pub real_runtime_path: Option<PathBuf>,
    /// The text of an OCI specification (the output of `ctr oci spec`), for containerd only. The
    /// hook is added to it, and containerd uses it as `base_runtime_spec`. The handler then keeps
    /// the program of the default runtime.
    pub base_spec: Option<String>,
}

impl InstallOptions {
    /// Returns all names of Boathook's runtime. The first one is always [`RUNTIME_HANDLER_NAME`].
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let additional_names = self.additional_names.iter().map(String::as_str);
        std::iter::once(RUNTIME_HANDLER_NAME).chain(additional_names)
    }
}
