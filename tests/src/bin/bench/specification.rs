//! Boathook's CDI specifications of the workload, and an engine's edits by them.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use harness::binaries;
use harness::bundle::{BundleBuilder, HookCommand, Stage};
use harness::captured::Captured;
use harness::reference_work::ReferenceWork;
use nix::sys::stat::{major, minor, stat};
use serde_json::Value;

/// What a container gets with the device `all` of a specification: its `containerEdits`.
pub(crate) struct Specification(Value);

impl Specification {
    /// What `boathook cdi generate` writes in this form.
    pub(crate) fn generate(host: &ReferenceWork, form: &str) -> Result<Self> {
        let directory = host.root().join(format!("cdi-{form}"));
        let mut command = Command::new(binaries::program("boathook")?);
        command.arg("--config").arg(host.config_file());
        command.args(["cdi", "generate", "bench", "--form", form, "--output"]);
        Captured::run(command.arg(&directory))?.success()?;
        let text = fs::read_to_string(directory.join("boathook-bench.com-npu.json"))?;
        let file: Value = serde_json::from_str(&text)?;
        let all = iter_items(&file["devices"]).find(|device| device["name"] == "all");
        let edits = &all.context("no device `all`")?["containerEdits"];
        Ok(Self(edits.clone()))
    }

    /// Adds it to a bundle, as an engine does.
    pub(crate) fn apply(
        &self,
        mut builder: BundleBuilder,
        host: &ReferenceWork,
    ) -> Result<BundleBuilder> {
        for variable in iter_items(&self.0["env"]) {
            let (key, value) = text(variable)?.split_once('=').context("no variable")?;
            builder = builder.env(key, value);
        }
        for node in iter_items(&self.0["deviceNodes"]) {
            // With the numbers that the host's node has.
            let path = text(&node["path"])?;
            let number = stat(node["hostPath"].as_str().unwrap_or(path))?.st_rdev;
            let number = (major(number), minor(number));
            builder = builder.char_device(path, number, text(&node["permissions"])?);
        }
        for mount in iter_items(&self.0["mounts"]) {
            let options: Vec<_> = iter_items(&mount["options"])
                .map(text)
                .collect::<Result<_>>()?;
            let source = text(&mount["hostPath"])?.as_ref();
            builder = builder.mount("bind", source, text(&mount["containerPath"])?, &options);
        }
        for hook in iter_items(&self.0["hooks"]) {
            let config = host.config_file().display().to_string();
            let command = HookCommand::new(text(&hook["path"])?.as_ref());
            let mut command = command.arg("--config").arg(&config);
            for argument in iter_items(&hook["args"]).skip(1) {
                command = command.arg(text(argument)?);
            }
            builder = builder.hook(Stage::CreateRuntime, command);
        }
        Ok(builder)
    }
}

fn iter_items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text(value: &Value) -> Result<&str> {
    value.as_str().with_context(|| format!("no text: {value}"))
}
