//! What an engine is told.

use std::path::PathBuf;

/// The name of the runtime handler; a RuntimeClass's `handler` must say the same.
pub const HANDLER: &str = "boathook";

/// The container annotations that containerd lets through to the OCI spec.
///
/// Listed under `container_annotations` only: `pod_annotations` would let a
/// pod's author write into the same map.
pub const ANNOTATIONS: &str = "devices.boathook.dev/*";

/// How long an engine lets the hook run, in seconds. Without a limit a hook
/// that hangs would hold its container for ever. It is more than preparing
/// devices may take (`[prepare]` of a class), and less than the 120 s that the
/// kubelet gives a container's start.
pub const HOOK_TIMEOUT: u32 = 110;

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
    /// containerd only: call the hook from this OCI spec (`base_runtime_spec`,
    /// the output of `ctr oci spec`) and leave the runtime alone.
    pub base_spec: Option<String>,
}
