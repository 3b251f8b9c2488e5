//! Implements `boathook doctor`, which explains why a container has no device. It examines each
//! step from the request in config.json to the device nodes that the container's user can open. It
//! changes nothing and calls no engine.

mod capabilities;
mod device_name;
pub(super) mod device_requests;
mod ended_container;
mod granted;
mod hook_entry;
mod injected;
mod logged;
mod repair;
mod requested;
mod rules;
mod spec;
mod stale_nodes;
mod unrequested;
mod user;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use device_class::config::Config;
use hook::exit::ExitCode;
use hook::planner::{self, Caller};
use injection_plan::plan::Grant;
use serde::Serialize;

use super::containers::{self, Container, ContainerLookupError};
use super::finding::{Finding, Severity, print_table};
use super::launcher::Launcher;
use super::running_root::RunningContainerRoot;
use super::{CommandError, log, print_json};
use crate::cli::ContainerSelector;

use repair::IncompleteContainer;
use requested::ExaminedRequests;
use spec::ContainerSpec;
use unrequested::UnrequestedDevices;

#[derive(Serialize)]
struct ContainerFindings {
    #[serde(flatten)]
    container: Container,
    findings: Vec<Finding>,
}

impl ContainerFindings {
    /// Returns the exit code of the first fault. Later faults are usually its consequences.
    fn first_fault_code(&self) -> Option<ExitCode> {
        self.findings.iter().find_map(|finding| finding.fault)
    }
}

/// Implements `boathook doctor`: examines the selected containers and prints the findings. Returns
/// the exit code of the first fault.
pub(super) fn run(
    selector: &ContainerSelector,
    state_root: Option<PathBuf>,
    as_json: bool,
    is_verbose: bool,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let examinations = match &selector.device {
        Some(name) => vec![ContainerFindings {
            container: Container::default(),
            findings: device_name::examine_device_name(name, config),
        }],
        None => examine_containers(selector, state_root, is_verbose, config),
    };
    let fault_code = examinations
        .iter()
        .find_map(ContainerFindings::first_fault_code);
    let mut out = io::stdout().lock();
    if as_json {
        let report = serde_json::json!({
            "fault": fault_code,
            "containers": examinations,
        });
        print_json(&report)?;
    } else {
        for (index, examination) in examinations.iter().enumerate() {
            if index > 0 {
                writeln!(out)?;
            }
            print_examination(examination, &mut out)?;
        }
    }
    Ok(fault_code.unwrap_or(ExitCode::Success))
}

fn examine_containers(
    selector: &ContainerSelector,
    state_root: Option<PathBuf>,
    is_verbose: bool,
    config: &Config,
) -> Vec<ContainerFindings> {
    match containers::find_selected_containers(selector, state_root, &config.host_root) {
        Ok(containers) => containers
            .into_iter()
            .map(|container| examine_present_container(container, selector, is_verbose, config))
            .collect(),
        Err(unknown_container) => vec![examine_unknown_name(unknown_container, config)],
    }
}

/// Finds the bundle of the container with the id or name `id_or_name`, or of the only container
/// whose id begins with it.
pub(super) fn find_bundle(id_or_name: &str, config: &Config) -> Result<PathBuf, CommandError> {
    let container = containers::find_by_id_or_name(id_or_name, None, &config.host_root);
    let container = container.map_err(CommandError::from_container_lookup_error)?;
    container.bundle.ok_or_else(|| CommandError::NoContainer {
        reason: format!("the bundle of container {} is not known", container.id),
        hint: "give its directory: --bundle DIR".to_owned(),
    })
}

fn print_examination(examination: &ContainerFindings, out: &mut impl Write) -> io::Result<()> {
    print_table(out, &examination.findings)?;
    if examination.first_fault_code().is_none() {
        let is_warning = |finding: &&Finding| finding.severity == Severity::Warning;
        let summaries = examination.findings.iter();
        let summaries: Vec<&str> = summaries
            .filter_map(|finding| finding.summary.as_deref())
            .collect();
        let result = match summaries.as_slice() {
            [] => "no fault found".to_owned(),
            summaries => summaries.join("; "),
        };
        let warning_note = match examination.findings.iter().filter(is_warning).count() {
            0 => String::new(),
            1 => ", but see the warning".to_owned(),
            count => format!(", but see the {count} warnings"),
        };
        writeln!(out, "\n{result}{warning_note}")?;
    }
    Ok(())
}

/// Returns the findings about a name to which no container belongs: a fault, and the messages in
/// the node's log about an earlier container with this name.
fn examine_unknown_name(
    unknown_container: ContainerLookupError,
    config: &Config,
) -> ContainerFindings {
    let container = Container::from_id(&unknown_container.name);
    let finding = Finding::new_fault(ExitCode::NoContainer, "container", unknown_container.reason);
    let mut findings = vec![finding.with_fix(unknown_container.fix)];
    findings.extend(logged::report_messages_of_unknown_name(
        &unknown_container.name,
        config,
    ));
    ContainerFindings {
        container,
        findings,
    }
}

/// Examines a container. If the container ends meanwhile, examines it again as an ended one,
/// because its files were removed during the examination.
fn examine_present_container(
    container: Container,
    selector: &ContainerSelector,
    is_verbose: bool,
    config: &Config,
) -> ContainerFindings {
    let examination = examine_container(container, selector, is_verbose, config);
    let container = &examination.container;
    if selector.id_or_name().is_none() || !container.has_vanished() {
        return examination;
    }
    match containers::find_ended_container(&container.id, &config.host_root) {
        Some(ended_container) => examine_container(ended_container, selector, is_verbose, config),
        None => examination,
    }
}

fn examine_container(
    container: Container,
    selector: &ContainerSelector,
    is_verbose: bool,
    config: &Config,
) -> ContainerFindings {
    let mut findings = Vec::new();
    if !container.id.is_empty() || !container.is_from_env_option() {
        findings.push(Finding::new(
            Severity::Ok,
            "container",
            container.describe(&config.host_root),
        ));
    }
    match &container.ended {
        Some(ended_container) => findings.extend(ended_container::examine_ended_container(
            &container,
            ended_container,
            is_verbose,
            config,
        )),
        None => match ContainerSpec::read(&container, &selector.env, &config.host_root) {
            Ok(spec) => findings.extend(examine_spec(&container, &spec, is_verbose, config)),
            Err(error) => {
                let text = log::format_error_chain(&error);
                findings.push(Finding::new_fault(ExitCode::Spec, "config.json", text));
            }
        },
    }
    if !container.id.is_empty() {
        findings.extend(logged::report_logged_messages(&container.id, config));
    }
    ContainerFindings {
        container,
        findings,
    }
}

/// Examines a container: its requests, the grants, the hook, and the files in the container. Stops
/// at the first fault, because later findings would only describe its consequences.
fn examine_spec(
    container: &Container,
    spec: &ContainerSpec,
    is_verbose: bool,
    config: &Config,
) -> Vec<Finding> {
    let launcher = Launcher::from_container(container, spec.is_in_a_pod());
    let launchers = if container.is_from_env_option() && container.ended.is_none() {
        Launcher::find_installed(config)
    } else {
        vec![launcher]
    };
    let runtime = containers::find_docker_runtime(&container.id, &config.host_root);
    let ExaminedRequests {
        classes,
        unrequested_devices,
        mut findings,
    } = requested::examine_requests(spec, &launchers, runtime.as_deref(), config);
    let root = container.pid.map(RunningContainerRoot::from_pid);
    if classes.is_empty() {
        findings.extend(warn_of_unknown_config(container, spec));
        findings.extend(check_unrequested_devices(
            container,
            spec,
            unrequested_devices,
            root.as_ref(),
            launcher,
        ));
        return findings;
    }
    if has_fault(&findings) {
        return findings;
    }
    let plan = match planner::plan_container_injection(&spec.bundle, &Caller::PlanInspector, config)
    {
        Ok(plan) => plan,
        Err(error) => {
            let fault_code = granted::to_exit_code(&error);
            let text = log::format_error_chain(&error);
            findings.push(Finding::new_fault(fault_code, "devices", text));
            return findings;
        }
    };
    findings.extend(granted::examine_grants(
        &plan, spec, &classes, is_verbose, config,
    ));
    findings.extend(capabilities::examine_capabilities(&plan, &launchers));
    if has_fault(&findings) {
        return findings;
    }
    let missing_files = root.as_ref().map(|root| root.find_missing_files(&plan));
    let has_all_files =
        matches!(&missing_files, Some(Ok(missing_files)) if missing_files.is_empty());
    let is_attached = |grant: &Grant| grant.grant_origin.is_user();
    let has_devices = |grant: &Grant| !grant.devices.is_empty();
    let has_hook_grants = !plan.grants.iter().all(is_attached);
    let needs_hook = has_hook_grants
        && (!plan.steps.is_empty()
            || plan.has_awaited_devices()
            || plan.grants.iter().any(has_devices));
    // A container that only waits for devices gets no files at its start, but the hook must record
    // its requests. So for such a container, the fact that no file is missing does not prove that
    // the hook was called.
    let is_complete = has_all_files && !(plan.steps.is_empty() && plan.has_awaited_devices());
    if needs_hook && let Some(ended_container) = &container.ended {
        findings.extend(hook_entry::examine_ended_container(
            ended_container,
            launcher,
        ));
    } else if needs_hook && !container.is_from_env_option() {
        findings.push(hook_entry::examine_hook_entry(launcher, spec, is_complete));
    }
    let (Some(root), Some(missing_files)) = (&root, missing_files) else {
        return findings;
    };
    let incomplete_container = IncompleteContainer {
        container,
        plan: &plan,
        classes: &classes,
        launcher,
        host_root: &config.host_root,
    };
    let nodes = &spec.bundle.spec_devices.nodes;
    let masked_steps = plan.find_hidden_paths(&spec.bundle.masked_paths.masked);
    let is_masked = |path: &String| {
        let mut steps = masked_steps.values();
        steps.any(|steps| steps.paths.contains(Path::new(path)))
    };
    let checks: [&dyn Fn() -> Option<Finding>; 3] = [
        &|| {
            let text_if_complete =
                "each node, file and library that it was to get is in the container";
            Some(match &missing_files {
                Ok(missing_files)
                    if !missing_files.is_empty() && missing_files.iter().all(is_masked) =>
                {
                    injected::create_masked_files_finding(missing_files)
                }
                _ => injected::create_missing_files_finding(
                    missing_files.clone(),
                    text_if_complete,
                    &incomplete_container.describe_missing_files_fix(),
                ),
            })
        },
        &|| {
            rules::examine_device_rules(
                container,
                &plan,
                &incomplete_container.describe_lost_rules_fix(),
            )
        },
        &|| user::examine_user_access(root, &plan, nodes, launcher),
    ];
    for check in checks {
        if has_fault(&findings) {
            break;
        }
        findings.extend(check());
    }
    findings
}

/// Returns a warning if a process requests nothing by its variables and its config.json is unknown.
/// A request by a CDI device name is only in config.json.
fn warn_of_unknown_config(container: &Container, spec: &ContainerSpec) -> Option<Finding> {
    let is_unknown = container.pid.is_some() && !spec.has_config;
    is_unknown.then(|| {
        let text = "no config.json was found for the process, so devices by name (`--device`) are \
                    not known";
        Finding::new(Severity::Warning, "config.json", text).with_fix(
            "run this as the user of a rootless engine, or name the container's bundle with \
             --bundle DIR",
        )
    })
}

fn has_fault(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.fault.is_some())
}

/// Checks the device nodes of a container that requests no device. The engine added these nodes to
/// config.json, for example because of the option `--device`.
fn check_unrequested_devices(
    container: &Container,
    spec: &ContainerSpec,
    unrequested_devices: UnrequestedDevices,
    root: Option<&RunningContainerRoot>,
    launcher: Launcher,
) -> Vec<Finding> {
    if unrequested_devices.is_empty() {
        return Vec::new();
    }
    let current_findings = root.map(|root| {
        let fix = launcher.describe_container_replacement();
        let rule_finding = rules::examine_device_rules(container, &unrequested_devices.plan, fix);
        let user_finding =
            user::examine_user_access(root, &unrequested_devices.plan, &[], launcher);
        rule_finding.into_iter().chain(user_finding)
    });
    let current_findings: Vec<Finding> = current_findings.into_iter().flatten().collect();
    let mut findings = unrequested_devices.into_findings(spec, root);
    findings.extend(current_findings);
    findings
}
