//! Boathook's CDI specifications of the workload, and an engine's edits by them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use harness::binaries;
use harness::bundle::{BundleBuilder, HookCommand, Stage};
use harness::captured::Captured;
use harness::reference_work::ReferenceWork;
use nix::sys::stat::{major, minor, stat};
use serde::Deserialize;

/// What a container gets with the device `all` of a specification.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Specification {
    #[serde(default)]
    env: Vec<String>,
    #[serde(default)]
    device_nodes: Vec<Node>,
    #[serde(default)]
    mounts: Vec<Mount>,
    #[serde(default)]
    hooks: Vec<Hook>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    path: PathBuf,
    host_path: Option<PathBuf>,
    permissions: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mount {
    host_path: PathBuf,
    container_path: String,
    options: Vec<String>,
}

#[derive(Deserialize)]
struct Hook {
    path: PathBuf,
    args: Vec<String>,
}

#[derive(Deserialize)]
struct File {
    devices: Vec<Device>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Device {
    name: String,
    container_edits: Specification,
}

impl Specification {
    /// What `boathook cdi generate` writes in this form.
    pub(crate) fn generate(host: &ReferenceWork, form: &str) -> Result<Self> {
        let directory = host.root().join(format!("cdi-{form}"));
        let mut command = Command::new(binaries::program("boathook")?);
        command.arg("--config").arg(host.config_file());
        command.args(["cdi", "generate", "bench", "--form", form, "--output"]);
        Captured::run(command.arg(&directory))?.success()?;
        let text = fs::read_to_string(directory.join("boathook-bench.com-npu.json"))?;
        let file: File = serde_json::from_str(&text)?;
        let mut devices = file.devices.into_iter();
        let all = devices.find(|device| device.name == "all");
        Ok(all.context("no device `all`")?.container_edits)
    }

    /// Adds it to a bundle, as an engine does.
    pub(crate) fn apply(
        &self,
        builder: BundleBuilder,
        host: &ReferenceWork,
    ) -> Result<BundleBuilder> {
        let mut builder = builder;
        for variable in &self.env {
            let (key, value) = variable.split_once('=').context("no variable")?;
            builder = builder.env(key, value);
        }
        for node in &self.device_nodes {
            builder = node.apply(builder)?;
        }
        for mount in &self.mounts {
            let options: Vec<&str> = mount.options.iter().map(String::as_str).collect();
            builder = builder.mount("bind", &mount.host_path, &mount.container_path, &options);
        }
        for hook in &self.hooks {
            let config = host.config_file().display().to_string();
            let command = HookCommand::new(&hook.path).arg("--config").arg(&config);
            let arguments = hook.args.iter().skip(1);
            let command = arguments.fold(command, |command, argument| command.arg(argument));
            builder = builder.hook(Stage::CreateRuntime, command);
        }
        Ok(builder)
    }
}

impl Node {
    /// The node and its rule, with the numbers that the host's node has.
    fn apply(&self, builder: BundleBuilder) -> Result<BundleBuilder> {
        let source: &Path = self.host_path.as_deref().unwrap_or(&self.path);
        let number = stat(source)?.st_rdev;
        let number = (major(number), minor(number));
        Ok(builder.char_device(&self.path, number, &self.permissions))
    }
}
