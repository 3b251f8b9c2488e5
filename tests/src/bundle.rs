//! Creates OCI bundles: a root file system, and the config.json that an engine would write for it.

mod builder;
pub(crate) mod config;
mod hook;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

pub use builder::BundleBuilder;
pub use hook::{HookCommand, Stage};

use crate::rootfs::Rootfs;

/// An OCI bundle in a temporary directory, which is removed when the value is dropped.
#[derive(Debug)]
pub struct Bundle {
    directory: TempDir,
    id: String,
}

impl Bundle {
    /// Begins a bundle with this root file system.
    pub fn builder(rootfs: Rootfs) -> BundleBuilder {
        BundleBuilder::new(rootfs)
    }

    /// Begins a bundle with this root file system, which has Boathook's hook with this
    /// configuration.
    pub fn with_hook(rootfs: Rootfs, config: &Path) -> Result<BundleBuilder> {
        let stage = Stage::CreateRuntime;
        let hook = HookCommand::boathook(stage, config)?;
        Ok(Self::builder(rootfs).hook(stage, hook))
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the path of the container's root file system on the host.
    pub fn rootfs(&self) -> PathBuf {
        self.directory().join("rootfs")
    }

    pub fn config_file(&self) -> PathBuf {
        self.directory().join("config.json")
    }

    /// Returns the id of the bundle's container, which no other bundle on this machine has.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the path on the host of `path` in the root file system, for tests that prepare an
    /// image. After a container has run, the path may lead elsewhere, because the container may
    /// have created links.
    pub fn in_rootfs(&self, path: &str) -> PathBuf {
        self.rootfs().join(path.trim_start_matches('/'))
    }

    fn new(directory: TempDir) -> Self {
        let number = crate::scratch::number();
        // No id is the beginning of another one, because leftovers are found by searching for the
        // id.
        let id = format!("boathook-test-{}-{number:06}", std::process::id());
        Self { directory, id }
    }

    fn write_config(&self, config: &impl serde::Serialize) -> Result<()> {
        let file = self.config_file();
        let json = serde_json::to_vec_pretty(config)?;
        fs::write(&file, json).with_context(|| format!("cannot write {}", file.display()))
    }
}
