//! CDI specifications that Boathook generates for a host's devices, and the edits that an engine
//! makes by them.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};
use harness::binaries;
use harness::bundle::{BundleBuilder, HookCommand, Stage};
use harness::captured::Captured;
use harness::demo_host::HostDirectory;
use nix::sys::stat::{major, minor, stat};
use serde_json::Value;

/// The `containerEdits` of one device and those of the whole specification.
pub(crate) struct Specification([Value; 2]);

impl Specification {
    /// Generates the CDI specification of a class with `boathook cdi generate` and reads the edits
    /// of one device from it.
    pub(crate) fn generate(
        host: &HostDirectory,
        class: &str,
        device: &str,
        form: &str,
    ) -> Result<Self> {
        let directory = host.root().join(format!("cdi-{form}"));
        let mut command = Command::new(binaries::program("boathook")?);
        command.arg("--config").arg(host.config_file());
        command.args(["cdi", "generate", class, "--form", form, "--output"]);
        Captured::run(command.arg(&directory))?.success()?;
        for file in fs::read_dir(&directory)? {
            let file: Value = serde_json::from_str(&fs::read_to_string(file?.path())?)?;
            let Some(found) = iter_items(&file["devices"]).find(|it| it["name"] == device) else {
                continue;
            };
            let edits = [&file["containerEdits"], &found["containerEdits"]];
            return Ok(Self(edits.map(Value::clone)));
        }
        bail!("no specification of {class} has a device {device}")
    }

    fn items(&self, kind: &'static str) -> impl Iterator<Item = &Value> {
        self.0
            .iter()
            .flat_map(move |edits| iter_items(&edits[kind]))
    }

    /// Applies the edits to a bundle, as an engine with CDI does.
    pub(crate) fn apply(
        &self,
        mut builder: BundleBuilder,
        host: &HostDirectory,
    ) -> Result<BundleBuilder> {
        for variable in self.items("env") {
            let (key, value) = text(variable)?.split_once('=').context("no variable")?;
            builder = builder.env(key, value);
        }
        for node in self.items("deviceNodes") {
            // An engine uses the device number of the host's node if the specification has none.
            let path = text(&node["path"])?;
            let number = stat(node["hostPath"].as_str().unwrap_or(path))?.st_rdev;
            let number = (major(number), minor(number));
            builder = builder.char_device(path, number, text(&node["permissions"])?);
        }
        for mount in self.items("mounts") {
            let options: Vec<_> = iter_items(&mount["options"])
                .map(text)
                .collect::<Result<_>>()?;
            let source = text(&mount["hostPath"])?.as_ref();
            builder = builder.mount("bind", source, text(&mount["containerPath"])?, &options);
        }
        for hook in self.items("hooks") {
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
