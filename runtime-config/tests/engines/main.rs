//! Tests that write and undo the configuration of every engine, on directory trees in a temporary
//! directory. No engine and no root is needed.

// clippy.toml allows these methods in `#[test]` functions, but not in their helper functions.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

mod changes;
mod default_runtime;
mod edited_files;
mod fixtures;
mod tree;

use runtime_config::{Change, Error, HostRoot, InstallOptions};

fn apply(host: &HostRoot, changes: &[Change]) -> Result<(), Error> {
    changes.iter().try_for_each(|change| change.apply(host))
}

fn options() -> InstallOptions {
    InstallOptions {
        hook_path: "/opt/boathook/current/bin/boathook-hook".into(),
        runtime_path: "/opt/boathook/current/bin/boathook-runtime".into(),
        set_default: false,
        real_runtime_path: None,
        additional_names: Vec::new(),
        base_spec: None,
    }
}
