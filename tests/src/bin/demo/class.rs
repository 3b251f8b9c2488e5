//! Demonstrates any class file, on this machine or on a recorded host: runs a container with the
//! first devices of the class and compares it with the plan.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use harness::binaries;
use harness::bundle::Bundle;
use harness::captured::Captured;
use harness::cgroup_view::CgroupView;
use harness::class_files;
use harness::probe::Questions;
use harness::recorded_host::RecordedHost;
use harness::rootfs::Rootfs;
use harness::runc::Runc;
use harness::scratch;
use serde_json::Value;

use crate::comparison::{Comparison, Row};
use crate::container::describe;
use crate::plan::Plan;
use crate::{on_each_cgroup_version, step};

/// The largest number of devices that the container requests.
const MAX_DEVICES: usize = 2;

/// Demonstrates the class file on this machine, or on the host of `recording`.
pub(crate) fn run(file: &Path, recording: Option<&Path>) -> Result<()> {
    let directory = scratch::directory("class")?;
    let recorded = match recording {
        Some(recording) => Some(RecordedHost::bare(&fs::read_to_string(recording)?)?),
        None => None,
    };
    let root = recorded.as_ref().map_or("/".into(), |host| host.root());
    let config = write_config(directory.path(), file, &root)?;
    let variable = variable(&config, file)?;
    let ids = devices(&config)?;
    let from = recording.unwrap_or(Path::new("/"));
    step(
        "host",
        &format!("{} healthy devices on {}", ids.len(), from.display()),
    );
    if ids.is_empty() {
        bail!("nothing to show: add HOST=host.txt, a recording of a machine that has devices");
    }
    let requested = ids[..ids.len().min(MAX_DEVICES)].join(",");
    step("request", &format!("{variable}={requested}"));
    on_each_cgroup_version(|view| show(&config, &variable, &requested, view))?;
    println!("demo: ok");
    Ok(())
}

/// Writes a configuration whose only class is `file`, and returns its path.
fn write_config(directory: &Path, file: &Path, root: &Path) -> Result<PathBuf> {
    let classes = directory.join("classes");
    fs::create_dir(&classes)?;
    let name = file.file_name().context("CLASS is not a file")?;
    class_files::copy(file, &classes.join(name))?;
    let config = directory.join("config.toml");
    fs::write(
        &config,
        format!("classes = [{classes:?}]\nhost_root = {root:?}\n"),
    )?;
    Ok(config)
}

/// Returns the environment variable by which containers request devices of the class.
fn variable(config: &Path, file: &Path) -> Result<String> {
    let checked = boathook(config, &["class", "check", &file.display().to_string()])?;
    let line = checked
        .lines()
        .find_map(|line| line.strip_prefix("request variable: "));
    Ok(line.context("class check names no variable")?.to_string())
}

fn devices(config: &Path) -> Result<Vec<String>> {
    let listed: Value = serde_json::from_str(&boathook(config, &["list", "--all", "--json"])?)?;
    let devices = listed["devices"].as_array().into_iter().flatten();
    let healthy = devices.filter(|device| device["healthy"] == true);
    let ids = healthy.filter_map(|device| device["id"].as_str());
    Ok(ids.map(ToString::to_string).collect())
}

fn boathook(config: &Path, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(binaries::program("boathook")?);
    command.arg("--config").arg(config).args(arguments);
    Ok(Captured::run(&mut command)?.success()?.stdout)
}

fn show(config: &Path, variable: &str, requested: &str, view: CgroupView) -> Result<()> {
    let bundle = Bundle::with_hook(Rootfs::Glibc, config)?;
    let bundle = bundle.env(variable, requested).build()?;
    let plan = Plan::explain(config, bundle.directory())?;
    let runc = Runc::new(view)?;
    let container = runc.create(&bundle)?;
    container.start()?;
    step(
        "runc",
        &format!("started a container with the hook on {view}"),
    );
    let mut questions = Questions::new();
    for (path, _) in plan.nodes() {
        questions = questions.path(path);
    }
    let report = container.probe(&questions)?;
    let mut rows = Vec::new();
    for (path, (major, minor)) in plan.nodes() {
        let planned = format!("c {major}:{minor}");
        let observed = describe(report.path(path)?);
        rows.push(Row {
            object: path.display().to_string(),
            requested: requested.to_string(),
            // A driver may refuse to open its device. Only EPERM is a fault of the hook: the device
            // cgroup then denies the access.
            is_correct: observed.starts_with(&planned) && !observed.ends_with("EPERM"),
            planned,
            observed,
        });
    }
    let comparison = Comparison(rows);
    print!("{comparison}");
    let differences = comparison.differences();
    if !differences.is_empty() {
        bail!("on {view}: {}", differences.join("; "));
    }
    Ok(())
}
