//! Implements `boathook class test`, which starts a container with a device of a class and reports
//! whether the container can open the device nodes. The container's root file system contains only
//! this program.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use device_class::DeviceClass;
use device_class::config::Config;
use device_class::discover;
use device_class::load::ClassSource;
use injection_plan::plan::{Action, InjectionPlan};
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::mkdtemp;
use serde_json::json;

use crate::command::finding::{Finding, Verdict, exit_code, print_table};
use crate::command::{CommandError, print_json};
use crate::exit::ExitCode;
use crate::installation::adjacent_hook_path;
use crate::oci::Bundle;
use crate::planner::{self, Caller};
use crate::wrapper;

const PROGRAM: &str = "boathook";

/// The prefix of the line that `boathook class open` prints for a node that could be opened. The
/// path of the node follows.
const OPENED_PREFIX: &str = "opened ";

/// The temporary directory with the container's files, which is removed when the value is dropped.
struct TemporaryDirectory(PathBuf);

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        // No file of a mount is removed, because the container's mounts were in its own mount
        // namespace, which has ended with the container.
        if let Err(error) = fs::remove_dir_all(&self.0) {
            crate::log::warning(&format!("cannot remove {}: {error}", self.0.display()));
        }
    }
}

/// Starts a container that requests `device`, or the first healthy device of the class if `device`
/// is `None`, and prints the findings.
pub(super) fn run(
    file: &Path,
    device: Option<&str>,
    as_json: bool,
    (config, config_file): (&Config, Option<&Path>),
) -> Result<ExitCode, CommandError> {
    let source = ClassSource::read(file, &config.classes)?;
    let class = config.class(&source)?;
    let devices = discover::find_devices(&class, &planner::open_host(config)?).devices;
    let healthy_device = devices.iter().find(|device| device.health.is_healthy());
    let device = device.map(str::to_owned);
    let Some(device) = device.or_else(|| healthy_device.map(|device| device.id.to_string())) else {
        return Err(CommandError::TestContainer(format!(
            "no healthy device of class {} on this host; `boathook class check {}` shows why",
            class.name,
            file.display()
        )));
    };
    let scratch = mkdtemp("/run/boathook-class-test-XXXXXX").map_err(|error| {
        let text = format!("cannot make a directory in /run: {error}; run this as root");
        CommandError::TestContainer(text)
    })?;
    let scratch = TemporaryDirectory(scratch);
    let settings = (config, config_file);
    let (plan, output) = run_container(&scratch.0, &source.path, &class, &device, settings)?;
    let findings = examine_output(&plan, &output);
    if as_json {
        print_json(&json!({ "class": class.name, "device": device, "findings": findings }))?;
    } else {
        writeln!(
            io::stdout(),
            "class {}: a container with {device}",
            class.name
        )?;
        print_table(&mut io::stdout().lock(), &findings)?;
    }
    Ok(exit_code(&findings))
}

/// Runs the container until its process has ended. Returns the injection plan and the output of
/// the process.
#[expect(clippy::disallowed_methods, reason = "in a directory of its own")]
fn run_container(
    scratch: &Path,
    file: &Path,
    class: &DeviceClass,
    device: &str,
    (config, config_file): (&Config, Option<&Path>),
) -> Result<(InjectionPlan, String), CommandError> {
    let to_file_error = |error| CommandError::File {
        path: scratch.to_owned(),
        error,
    };
    let this_program = std::env::current_exe().map_err(to_file_error)?;
    let hook = adjacent_hook_path();
    if !hook.is_file() {
        let text = format!(
            "{} does not exist: it is called as the hook",
            hook.display()
        );
        return Err(CommandError::TestContainer(text));
    }
    let (classes, bundle) = (scratch.join("classes.d"), scratch.join("bundle"));
    let rootfs = bundle.join("rootfs");
    for directory in ["dev", "proc", "etc", "usr/lib"] {
        fs::create_dir_all(rootfs.join(directory)).map_err(to_file_error)?;
    }
    fs::copy(&this_program, rootfs.join(PROGRAM)).map_err(to_file_error)?;
    fs::create_dir(&classes).map_err(to_file_error)?;
    fs::copy(file, classes.join(format!("{}.toml", class.name))).map_err(to_file_error)?;
    let mut config = config.clone();
    config.classes.push(classes.clone());

    let name = scratch.file_name().unwrap_or_default().to_string_lossy();
    let namespaces = ["pid", "mount", "network", "ipc", "uts"].map(|kind| json!({"type": kind}));
    let mut arguments = vec![hook.clone(), "--also-classes".into(), classes.clone()];
    if let Some(file) = config_file {
        arguments.extend([
            "--config".into(),
            std::path::absolute(file).map_err(to_file_error)?,
        ]);
    }
    arguments.push("prestart".into());
    let spec = |nodes: &[&Path]| {
        let mut words = vec![format!("/{PROGRAM}"), "class".into(), "open".into()];
        words.extend(nodes.iter().map(|node| node.display().to_string()));
        json!({
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": 0, "gid": 0},
                "args": words,
                "env": [format!("{}={device}", class.spec.request.env)],
                "cwd": "/",
                "noNewPrivileges": true,
            },
            "root": {"path": "rootfs"},
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
            "hooks": {"prestart": [{
                "path": hook,
                "args": arguments,
            }]},
            "linux": {
                "cgroupsPath": format!("/{name}"),
                "namespaces": namespaces,
                "resources": {"devices": [{"allow": false, "access": "rwm"}]},
            },
        })
    };
    let write = |nodes: &[&Path]| fs::write(bundle.join("config.json"), spec(nodes).to_string());
    write(&[]).map_err(to_file_error)?;
    let plan =
        planner::plan_injection_for(&Bundle::read(&bundle)?, &Caller::PlanInspector, &config)?;
    write(&list_nodes(&plan).collect::<Vec<_>>()).map_err(to_file_error)?;
    let runtime = wrapper::real_runtime(&config.runtime)
        .map_err(|error| CommandError::TestContainer(crate::log::format_error_chain(&error)))?;
    let output = Command::new(&runtime)
        .arg("--root")
        .arg(scratch.join("state"))
        .args(["run", "--bundle"])
        .arg(&bundle)
        .arg(&*name)
        .output()
        .map_err(|error| {
            CommandError::TestContainer(format!("cannot run {}: {error}", runtime.display()))
        })?;
    if !output.status.success() {
        return Err(CommandError::TestContainer(format!(
            "{} did not start the container: {}",
            runtime.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        )));
    }
    Ok((plan, String::from_utf8_lossy(&output.stdout).into_owned()))
}

fn list_nodes(plan: &InjectionPlan) -> impl Iterator<Item = &Path> {
    plan.steps.iter().filter_map(|step| match &step.action {
        Action::Node { mount, .. } => Some(mount.path.as_path()),
        Action::MakeNode { path, .. } => Some(path.as_path()),
        _ => None,
    })
}

/// Returns a finding for each device node of the plan, according to the output of the container's
/// process, and one finding for all libraries.
fn examine_output(plan: &InjectionPlan, output: &str) -> Vec<Finding> {
    let examine_node = |node: &Path| {
        let subject = format!("node {}", node.display());
        let is_about_node = |line: &&str| line.ends_with(&format!(" {}", node.display()));
        match output.lines().find(is_about_node) {
            Some(line) if line.starts_with(OPENED_PREFIX) => {
                Finding::new(Verdict::Ok, subject, "the container has opened it")
            }
            Some(line) => Finding::new(Verdict::Error, subject, format!("not opened: {line}")),
            None => Finding::new(
                Verdict::Error,
                subject,
                "the container reports nothing of it",
            ),
        }
    };
    let mut findings: Vec<_> = list_nodes(plan).map(examine_node).collect();
    let is_library = |action: &Action| matches!(action, Action::Library { .. });
    let libraries = plan.steps.iter().filter(|step| is_library(&step.action));
    let text = format!("{} of the host", libraries.count());
    findings.push(Finding::new(Verdict::Note, "libraries", text));
    let warning = |text: &String| Finding::new(Verdict::Warning, "plan", text);
    findings.extend(plan.warnings.iter().map(warning));
    findings
}

/// Implements `boathook class open`, which runs in the container of `class test`: opens each node
/// for reading, and prints the result. Opening a node does not block, and a terminal does not become
/// the controlling terminal.
pub(super) fn open_nodes(nodes: &[PathBuf]) -> io::Result<ExitCode> {
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let mut out = io::stdout().lock();
    for node in nodes {
        match nix::fcntl::open(node, flags, Mode::empty()) {
            Ok(_) => writeln!(out, "{OPENED_PREFIX}{}", node.display())?,
            Err(error) => writeln!(out, "{error}: {}", node.display())?,
        }
    }
    Ok(ExitCode::Success)
}
