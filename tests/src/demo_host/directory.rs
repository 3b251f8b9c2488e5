//! The directory of a demo host: its root, class files and configuration.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::{binaries, class_files, scratch};

/// A host without devices, which is removed when the value is dropped. Programs use it as their
/// host by `host_root` in the configuration. Every user can create one.
#[derive(Debug)]
pub struct HostDirectory(TempDir);

impl HostDirectory {
    /// Creates an empty root with /dev, /etc and /run, and the class `dummy-npu`.
    pub fn new() -> Result<Self> {
        let host = Self(scratch::directory("host")?);
        for directory in [
            host.root().join("dev"),
            host.root().join("etc"),
            host.root().join("run"),
            host.classes(),
        ] {
            fs::create_dir_all(&directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
        }
        host.add_shipped_class("dummy-npu")?;
        host.write_config("")?;
        Ok(host)
    }

    /// Returns the root directory of the host.
    pub fn root(&self) -> PathBuf {
        self.path().join("root")
    }

    pub fn classes(&self) -> PathBuf {
        self.path().join("classes")
    }

    pub fn config_file(&self) -> PathBuf {
        self.path().join("config.toml")
    }

    /// Returns the temporary directory, which contains the root, the class files and the
    /// configuration.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn add_class(&self, name: &str, text: &str) -> Result<()> {
        let file = self.classes().join(format!("{name}.toml"));
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    }

    /// Adds one of the shipped classes, enabled, and the class that it extends.
    pub fn add_shipped_class(&self, name: &str) -> Result<()> {
        let source = binaries::source_tree().join(format!("device-class/classes/{name}.toml"));
        let text = fs::read_to_string(&source)
            .with_context(|| format!("cannot read {}", source.display()))?;
        let base = text
            .lines()
            .find_map(|line| line.strip_prefix("extends = "));
        if let Some(base) = base {
            self.add_shipped_class(base.trim_matches('"'))?;
        }
        self.add_class(name, &text.replace("\nenabled = false\n", "\n"))
    }

    /// Adds all classes that are shipped. The installer writes them, and their index, as it does
    /// for an installation.
    pub fn install_all_shipped_classes(&self) -> Result<()> {
        let installed = class_files::install(self.path())?;
        fs::remove_dir_all(self.classes())?;
        fs::rename(installed, self.classes()).context("cannot move the installed classes")
    }

    /// Adds a file to the root.
    pub fn add_file(&self, path: &str, text: &str) -> Result<()> {
        let file = self.root().join(path.trim_start_matches('/'));
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    }

    /// Writes a configuration with this host, followed by the lines `more`.
    pub fn write_config(&self, more: &str) -> Result<()> {
        let text = format!(
            "classes = [{:?}]\nhost_root = {:?}\n{more}",
            self.classes(),
            self.root()
        );
        let file = self.config_file();
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    }

    /// Writes a configuration that trusts the checkpoint of the kubelet with this directory,
    /// followed by the lines `more`.
    pub fn trust_kubelet(&self, directory: &Path, more: &str) -> Result<()> {
        let checkpoint = directory.join("device-plugins/kubelet_internal_checkpoint");
        let trust = format!("[trust]\nkubelet_checkpoint = {checkpoint:?}\n{more}");
        self.write_config(&trust)
    }

    /// Returns the lines that the hook has logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.root().join("run/boathook/log")).unwrap_or_default()
    }

    /// Returns the logged warnings and errors, without the line for each container that was started
    /// with devices.
    pub fn logged_problems(&self) -> String {
        let log = self.log();
        let problems = log
            .lines()
            .filter(|line| !line.contains("boathook: info: "));
        problems.map(|line| format!("{line}\n")).collect()
    }
}
