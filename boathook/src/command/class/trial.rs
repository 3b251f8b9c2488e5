//! Implements `boathook class test`, which starts a container with a device of a class and reports
//! whether the container can open the device nodes. The only program in the container is this one.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use device_class::DeviceClass;
use device_class::config::Config;
use device_class::discover;
use device_class::load::ClassSource;
use hook::exit::ExitCode;
use hook::installation::adjacent_hook_path;
use hook::oci::Bundle;
use hook::planner::{self, Caller};
use hook::wrapper;
use injection_plan::plan::{Action, InjectionPlan};
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::mkdtemp;
use serde_json::json;

use crate::command::finding::{Finding, Severity, print_table, to_exit_code};
use crate::command::{CommandError, print_json};

const PROGRAM_FILE_NAME: &str = "boathook";

/// The prefix of the line that `boathook class open` prints after it has opened a device node. The
/// node's path follows the prefix.
const OPENED_LINE_PREFIX: &str = "opened ";

/// The temporary directory with the container's files. It is removed when this value is dropped.
struct ScratchDirectory(PathBuf);

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        // This cannot remove files of the host: the container's mounts existed only in its own
        // mount namespace, which no longer exists.
        if let Err(error) = fs::remove_dir_all(&self.0) {
            hook::log::warning(&format!("cannot remove {}: {error}", self.0.display()));
        }
    }
}

/// Starts a container that requests the device `device_name` of the class, and prints the findings.
/// If `device_name` is `None`, the container requests the first healthy device.
pub(super) fn run(
    class_file_path: &Path,
    device_name: Option<&str>,
    as_json: bool,
    (config, config_path): (&Config, Option<&Path>),
) -> Result<ExitCode, CommandError> {
    let source = ClassSource::read(class_file_path, &config.classes)?;
    let class = config.class(&source)?;
    let devices = discover::find_devices(&class, &planner::open_host(config)?).devices;
    let healthy_device = devices.iter().find(|device| device.health.is_healthy());
    let device_name = device_name.map(str::to_owned);
    let Some(device_name) =
        device_name.or_else(|| healthy_device.map(|device| device.id.to_string()))
    else {
        return Err(CommandError::TestContainer(format!(
            "no healthy device of class {} on this host; `boathook class check {}` shows why",
            class.name,
            class_file_path.display()
        )));
    };
    let scratch_path = mkdtemp("/run/boathook-class-test-XXXXXX").map_err(|error| {
        let text = format!("cannot make a directory in /run: {error}; run this as root");
        CommandError::TestContainer(text)
    })?;
    let scratch_dir = ScratchDirectory(scratch_path);
    let settings = (config, config_path);
    let (plan, output) =
        run_container(&scratch_dir.0, &source.path, &class, &device_name, settings)?;
    let findings = examine_output(&plan, &output);
    if as_json {
        print_json(&json!({ "class": class.name, "device": device_name, "findings": findings }))?;
    } else {
        writeln!(
            io::stdout(),
            "class {}: a container with {device_name}",
            class.name
        )?;
        print_table(&mut io::stdout().lock(), &findings)?;
    }
    Ok(to_exit_code(&findings))
}

/// Runs the container and waits until its process ends. Returns the injection plan and the output
/// of the process.
#[expect(clippy::disallowed_methods, reason = "in a directory of its own")]
fn run_container(
    scratch_dir: &Path,
    class_file_path: &Path,
    class: &DeviceClass,
    device_name: &str,
    (config, config_path): (&Config, Option<&Path>),
) -> Result<(InjectionPlan, String), CommandError> {
    let to_file_error = |error| CommandError::File {
        path: scratch_dir.to_owned(),
        error,
    };
    let program_path = std::env::current_exe().map_err(to_file_error)?;
    let hook_path = adjacent_hook_path();
    if !hook_path.is_file() {
        let text = format!(
            "{} does not exist: it is called as the hook",
            hook_path.display()
        );
        return Err(CommandError::TestContainer(text));
    }
    let (class_dir, bundle_dir) = (scratch_dir.join("classes.d"), scratch_dir.join("bundle"));
    let rootfs = bundle_dir.join("rootfs");
    for directory in ["dev", "proc", "etc", "usr/lib"] {
        fs::create_dir_all(rootfs.join(directory)).map_err(to_file_error)?;
    }
    fs::copy(&program_path, rootfs.join(PROGRAM_FILE_NAME)).map_err(to_file_error)?;
    fs::create_dir(&class_dir).map_err(to_file_error)?;
    fs::copy(
        class_file_path,
        class_dir.join(format!("{}.toml", class.name)),
    )
    .map_err(to_file_error)?;
    let mut config = config.clone();
    config.classes.push(class_dir.clone());

    let container_id = scratch_dir
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    let namespaces = ["pid", "mount", "network", "ipc", "uts"].map(|kind| json!({"type": kind}));
    let mut hook_arguments = vec![
        hook_path.clone(),
        "--also-classes".into(),
        class_dir.clone(),
    ];
    if let Some(config_path) = config_path {
        hook_arguments.extend([
            "--config".into(),
            std::path::absolute(config_path).map_err(to_file_error)?,
        ]);
    }
    hook_arguments.push("prestart".into());
    let to_config_json = |nodes: &[&Path]| {
        let mut process_arguments = vec![
            format!("/{PROGRAM_FILE_NAME}"),
            "class".into(),
            "open".into(),
        ];
        process_arguments.extend(nodes.iter().map(|node| node.display().to_string()));
        json!({
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": 0, "gid": 0},
                "args": process_arguments,
                "env": [format!("{}={device_name}", class.spec.request.env)],
                "cwd": "/",
                "noNewPrivileges": true,
            },
            "root": {"path": "rootfs"},
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
            "hooks": {"prestart": [{
                "path": hook_path,
                "args": hook_arguments,
            }]},
            "linux": {
                "cgroupsPath": format!("/{container_id}"),
                "namespaces": namespaces,
                "resources": {"devices": [{"allow": false, "access": "rwm"}]},
            },
        })
    };
    let write_config_json = |nodes: &[&Path]| {
        fs::write(
            bundle_dir.join("config.json"),
            to_config_json(nodes).to_string(),
        )
    };
    write_config_json(&[]).map_err(to_file_error)?;
    let plan = planner::plan_container_injection(
        &Bundle::read(&bundle_dir)?,
        &Caller::PlanInspector,
        &config,
    )?;
    write_config_json(&list_node_paths(&plan).collect::<Vec<_>>()).map_err(to_file_error)?;
    let runtime = wrapper::real_runtime(&config.runtime)
        .map_err(|error| CommandError::TestContainer(hook::log::format_error_chain(&error)))?;
    let output = Command::new(&runtime)
        .arg("--root")
        .arg(scratch_dir.join("state"))
        .args(["run", "--bundle"])
        .arg(&bundle_dir)
        .arg(&*container_id)
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

fn list_node_paths(plan: &InjectionPlan) -> impl Iterator<Item = &Path> {
    plan.steps.iter().filter_map(|step| match &step.action {
        Action::Node { mount, .. } => Some(mount.path.as_path()),
        Action::MakeNode { path, .. } => Some(path.as_path()),
        _ => None,
    })
}

/// Returns a finding for each device node of the plan and one finding for all libraries. `output`
/// is the output of the container's process.
fn examine_output(plan: &InjectionPlan, output: &str) -> Vec<Finding> {
    let find_node_result = |node: &Path| {
        let subject = format!("node {}", node.display());
        let is_about_node = |line: &&str| line.ends_with(&format!(" {}", node.display()));
        match output.lines().find(is_about_node) {
            Some(line) if line.starts_with(OPENED_LINE_PREFIX) => {
                Finding::new(Severity::Ok, subject, "the container has opened it")
            }
            Some(line) => Finding::new(Severity::Error, subject, format!("not opened: {line}")),
            None => Finding::new(
                Severity::Error,
                subject,
                "the container reports nothing of it",
            ),
        }
    };
    let mut findings: Vec<_> = list_node_paths(plan).map(find_node_result).collect();
    let is_library = |action: &Action| matches!(action, Action::Library { .. });
    let libraries = plan.steps.iter().filter(|step| is_library(&step.action));
    let text = format!("{} of the host", libraries.count());
    findings.push(Finding::new(Severity::Note, "libraries", text));
    let to_warning = |text: &String| Finding::new(Severity::Warning, "plan", text);
    findings.extend(plan.warnings.iter().map(to_warning));
    findings
}

/// Implements `boathook class open`, which runs in the container of `boathook class test`. It opens
/// each device node for reading and prints the result. Opening does not block, and a terminal does
/// not become the controlling terminal.
pub(super) fn open_nodes(node_paths: &[PathBuf]) -> io::Result<ExitCode> {
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let mut out = io::stdout().lock();
    for node_path in node_paths {
        match nix::fcntl::open(node_path, flags, Mode::empty()) {
            Ok(_) => writeln!(out, "{OPENED_LINE_PREFIX}{}", node_path.display())?,
            Err(error) => writeln!(out, "{error}: {}", node_path.display())?,
        }
    }
    Ok(ExitCode::Success)
}
