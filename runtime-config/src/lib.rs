//! Teaches container engines to call the hook, and unteaches them.
//!
//! The way of the data: [`Engine::read`] takes a [`Snapshot`] of an engine's
//! files from a [`HostRoot`]; [`Engine::plan_install`] and
//! [`Engine::plan_undo`], pure functions, make a [`Plan`] of it, which prints
//! as a diff; the caller keeps the plan's [`Record`] and then has each
//! [`Change`] [applied](Change::apply).
//!
//! Where an engine has drop-ins, the files are ours alone. Where it has none,
//! a text edit adds lines to the user's file and touches no other byte. Such
//! an edit is undone in one of two ways: a file that still is what we wrote
//! gets back what the record says it was; one that its owner has changed since
//! loses what carries our marks.

mod apply;
mod change;
mod containerd;
mod crio;
mod dispatch;
mod docker;
mod docker_api;
mod drop_in;
mod engine;
mod error;
mod host;
mod json_text;
mod oci_hook;
mod options;
mod ours;
mod plan;
mod podman;
mod processes;
mod record;
mod snapshot;
mod state;
mod toml_text;

pub use apply::{apply, scratch, scratch_of};
pub use change::Change;
pub use engine::{Engine, Facts, PROGRAM_DIRECTORIES, RUNTIMES, Reload};
pub use error::Error;
pub use host::{HostRoot, Place};
pub use options::{ANNOTATIONS, HANDLER, HOOK_TIMEOUT, Options};
pub use plan::Plan;
pub use processes::{Process, processes};
pub use record::Record;
pub use snapshot::Snapshot;
pub use state::{Held, Loaded, held, is_running, loaded, reload, wait};
