//! OCI bundles: a root file system and the config.json that an engine would
//! write for it.

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

/// A bundle of its own directory, removed when dropped.
#[derive(Debug)]
pub struct Bundle {
    directory: TempDir,
    id: String,
}

impl Bundle {
    /// A bundle with this root file system, to be filled in.
    pub fn builder(rootfs: Rootfs) -> BundleBuilder {
        BundleBuilder::new(rootfs)
    }

    /// The same with `boathook` as its hook, with this configuration.
    pub fn with_hook(rootfs: Rootfs, config: &Path) -> Result<BundleBuilder> {
        let stage = Stage::CreateRuntime;
        let hook = HookCommand::boathook(stage, config)?;
        Ok(Self::builder(rootfs).hook(stage, hook))
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The container's root file system, as the host sees it.
    pub fn rootfs(&self) -> PathBuf {
        self.directory().join("rootfs")
    }

    pub fn config_file(&self) -> PathBuf {
        self.directory().join("config.json")
    }

    /// The id for its container: no other bundle on this machine has it.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What is in the root file system at `path`, for tests that prepare an
    /// image. Only before a container ran in it: then it is hostile.
    pub fn in_rootfs(&self, path: &str) -> PathBuf {
        self.rootfs().join(path.trim_start_matches('/'))
    }

    fn new(directory: TempDir) -> Self {
        let number = crate::scratch::number();
        // No id is the beginning of another one: leftovers are found by the id.
        let id = format!("boathook-test-{}-{number:06}", std::process::id());
        Self { directory, id }
    }

    fn write_config(&self, config: &impl serde::Serialize) -> Result<()> {
        let file = self.config_file();
        let json = serde_json::to_vec_pretty(config)?;
        fs::write(&file, json).with_context(|| format!("cannot write {}", file.display()))
    }
}
