//! Configures container engines to call the hook, and reverts the configuration. The installer
//! calls this crate. The hook uses only its table of engines. The crate changes only the files that
//! its plan names, and reloads an engine only if the installer asks for it.
//!
//! Without the feature `configure`, the crate contains only what the hook needs: the table of the
//! engines and the comparison of versions. It then depends on no crate that edits files.
//!
//! Data flow: [`Engine::read_snapshot`] takes a [`Snapshot`] of an engine's files from a
//! [`HostRoot`]. Two pure functions, [`Engine::plan_install`] and [`Engine::plan_undo`], compute a
//! [`Plan`] from the snapshot. A plan is printed as a diff. The caller writes the plan's
//! [`InstallationRecord`] to disk and then [applies](Change::apply) each [`Change`].
//!
//! If an engine reads drop-ins, Boathook writes files of its own. Otherwise Boathook adds lines to
//! the user's file and changes no other byte. There are two ways to undo this. If the file still
//! has the text of the installation, it gets the recorded previous text. If the administrator has
//! changed the file since, the lines with Boathook's marks are removed.
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests make their own files")
)]

#[cfg(feature = "configure")]
mod apply;
#[cfg(feature = "configure")]
mod change;
#[cfg(feature = "configure")]
mod containerd;
#[cfg(feature = "configure")]
mod crio;
#[cfg(feature = "configure")]
mod daemon_options;
#[cfg(feature = "configure")]
mod default_runtime;
#[cfg(feature = "configure")]
mod docker;
#[cfg(feature = "configure")]
mod drop_in;
#[cfg(feature = "configure")]
mod engine;
mod engine_properties;
#[cfg(feature = "configure")]
mod error;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
#[cfg(feature = "configure")]
mod host;
#[cfg(feature = "configure")]
mod json_text;
#[cfg(feature = "configure")]
mod key_case;
#[cfg(feature = "configure")]
mod oci_hook;
#[cfg(feature = "configure")]
mod options;
#[cfg(feature = "configure")]
mod plan;
#[cfg(feature = "configure")]
mod podman;
#[cfg(feature = "configure")]
mod processes;
#[cfg(feature = "configure")]
mod record;
#[cfg(feature = "configure")]
mod snapshot;
#[cfg(feature = "configure")]
mod state;
#[cfg(feature = "configure")]
mod toml_text;
#[cfg(feature = "configure")]
mod unit;
mod versions;

#[cfg(feature = "configure")]
pub use apply::{scratch_entry, scratch_path};
#[cfg(feature = "configure")]
pub use change::Change;
#[cfg(feature = "configure")]
pub use default_runtime::{ReplacedRuntime, find_common_runtime};
#[cfg(feature = "configure")]
pub use docker::{LiveRestore, find_docker_config_path, find_docker_snap};
pub use engine_properties::{
    ANNOTATION_PATTERN, Engine, EngineProperties, HOOK_ENVIRONMENT, HOOK_TIMEOUT_SECONDS,
    INSTALLED_HOOK_PATH, LoadCheck, OCI_RUNTIME_NAMES, PROGRAM_DIRECTORIES, RUNTIME_HANDLER_NAME,
    ReloadMethod, program_directories,
};
#[cfg(feature = "configure")]
pub use error::Error;
#[cfg(feature = "configure")]
pub use host::{HostEntry, HostRoot};
#[cfg(feature = "configure")]
pub use options::InstallOptions;
#[cfg(feature = "configure")]
pub use plan::Plan;
#[cfg(feature = "configure")]
pub use processes::{Process, find_processes};
#[cfg(feature = "configure")]
pub use record::InstallationRecord;
#[cfg(feature = "configure")]
pub use snapshot::Snapshot;
#[cfg(feature = "configure")]
pub use state::{
    LoadState, RuntimeUse, find_existing_units, find_load_state, find_runtime_use, has_systemd,
    is_running, reload_engine, run_systemctl, wait_for_reload, was_docker_started_before,
};
pub use versions::{
    PACKAGED_VERSION_PATH, RunningProgram, VersionMismatch, compare_versions, find_running_programs,
};
