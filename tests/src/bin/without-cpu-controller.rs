//! `without-cpu-controller ARGUMENT...` runs runc on a cgroup v2 tree that has no `cpu` controller.
//!
//! Engines set CPU shares for the sandbox of each pod, and runc fails if it cannot set them. This
//! program therefore removes `linux.resources.cpu` from config.json before it runs runc.

#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use harness::exit;
use serde_json::Value;

fn main() -> ExitCode {
    exit::with("without-cpu-controller", run())
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut words = arguments.iter().skip_while(|word| *word != "--bundle");
    if let Some(bundle) = words.nth(1) {
        take_shares_out(&Path::new(bundle).join("config.json"))?;
    }
    let error = Command::new("runc").args(arguments).exec();
    Err(error).context("cannot run runc")
}

fn take_shares_out(file: &Path) -> Result<()> {
    let text = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut spec: Value = serde_json::from_slice(&text)?;
    if let Some(resources) = spec.pointer_mut("/linux/resources") {
        resources["cpu"] = Value::Null;
    }
    fs::write(file, spec.to_string()).with_context(|| format!("cannot write {}", file.display()))
}
