//! `boathook doctor`: explains why a container has no device. The examination goes from the
//! container's config.json to the nodes that the container can open now. It changes nothing
//! and does not call the engine.

mod capabilities;
mod device_name;
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
use injection_plan::plan::Grant;
use serde::Serialize;

use super::containers::{self, Container, UnknownContainer};
use super::engine_words::Launcher;
use super::finding::{Finding, Verdict, print_table};
use super::running_root::RunningRoot;
use super::{CommandError, log, print_json};
use crate::cli::ContainerSelector;
use crate::exit::ExitCode;
use crate::planner::{self, Caller};

use repair::Repair;
use requested::Requests;
use spec::ContainerSpec;
use unrequested::Unrequested;

#[derive(Serialize)]
struct Examination {
    #[serde(flatten)]
    container: Container,
    findings: Vec<Finding>,
}

impl Examination {
    /// Returns the first fault. Later faults are usually consequences of the first one.
    fn fault(&self) -> Option<ExitCode> {
        self.findings.iter().find_map(|finding| finding.fault)
    }
}

/// Examines the selected containers, and prints the findings.
pub(super) fn run(
    whose: &ContainerSelector,
    root: Option<PathBuf>,
    json: bool,
    verbose: bool,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let examined = match &whose.device {
        Some(name) => vec![Examination {
            container: Container::default(),
            findings: device_name::findings(name, config),
        }],
        None => examine_all(whose, root, verbose, config),
    };
    let fault = examined.iter().find_map(Examination::fault);
    let mut out = io::stdout().lock();
    if json {
        let report = serde_json::json!({
            "fault": fault,
            "containers": examined,
        });
        print_json(&report)?;
    } else {
        for (at, examination) in examined.iter().enumerate() {
            if at > 0 {
                writeln!(out)?;
            }
            print(examination, &mut out)?;
        }
    }
    Ok(fault.unwrap_or(ExitCode::Success))
}

fn examine_all(
    whose: &ContainerSelector,
    root: Option<PathBuf>,
    verbose: bool,
    config: &Config,
) -> Vec<Examination> {
    match containers::find_selected(whose, root, &config.host_root) {
        Ok(containers) => containers
            .into_iter()
            .map(|container| examine(container, whose, verbose, config))
            .collect(),
        Err(unknown) => vec![nobody(unknown, config)],
    }
}

/// Finds the bundle of a container of this host. The container is named by its id, its name, or
/// the first characters of its id.
pub(super) fn bundle_of(container: &str, config: &Config) -> Result<PathBuf, CommandError> {
    let found = containers::find_by_id_or_name(container, None, &config.host_root);
    let found = found.map_err(CommandError::no_container)?;
    found.bundle.ok_or_else(|| CommandError::NoContainer {
        reason: format!("the bundle of container {} is not known", found.id),
        hint: "give its directory: --bundle DIR".to_owned(),
    })
}

fn print(examination: &Examination, out: &mut impl Write) -> io::Result<()> {
    print_table(out, &examination.findings)?;
    if examination.fault().is_none() {
        let is_warning = |finding: &&Finding| finding.verdict == Verdict::Warning;
        let but = match examination.findings.iter().filter(is_warning).count() {
            0 => String::new(),
            1 => ", but see the warning".to_owned(),
            count => format!(", but see the {count} warnings"),
        };
        writeln!(out, "\nno fault found{but}")?;
    }
    Ok(())
}

/// Returns the examination of a container that does not exist.
fn nobody(unknown: UnknownContainer, config: &Config) -> Examination {
    let container = Container::from_id(&unknown.name);
    let finding = Finding::fault(ExitCode::NoContainer, "container", unknown.reason);
    let mut findings = vec![finding.fix(unknown.fix)];
    let about = logged::find_messages(&unknown.name, config);
    match about.is_empty() {
        true => findings.extend(logged::find_last_refusals(config)),
        false => findings.extend(about),
    }
    Examination {
        container,
        findings,
    }
}

fn examine(
    container: Container,
    whose: &ContainerSelector,
    verbose: bool,
    config: &Config,
) -> Examination {
    let mut findings = Vec::new();
    if !container.id.is_empty() || !container.is_hypothetical() {
        findings.push(Finding::new(
            Verdict::Ok,
            "container",
            container.to_string(),
        ));
    }
    let env = container.ended.as_ref().map_or(&whose.env, |it| &it.env);
    match ContainerSpec::read(&container, env, &config.host_root) {
        Ok(spec) => findings.extend(examine_spec(&container, &spec, verbose, config)),
        Err(error) => {
            let text = log::chain(&error);
            findings.push(Finding::fault(ExitCode::Spec, "config.json", text));
        }
    }
    let is_explained = findings.iter().any(|finding| finding.fault.is_some());
    let error = container.ended.as_ref().and_then(|it| it.error.as_ref());
    if let Some(error) = error.filter(|_| !is_explained) {
        findings.push(Finding::fault(ExitCode::NoContainer, "container", error));
    }
    if !container.id.is_empty() {
        findings.extend(logged::find_messages(&container.id, config));
    }
    Examination {
        container,
        findings,
    }
}

/// Examines a container from its request to its present state. The examination ends at the first
/// fault: what follows from it would hide the cause.
fn examine_spec(
    container: &Container,
    spec: &ContainerSpec,
    verbose: bool,
    config: &Config,
) -> Vec<Finding> {
    let launcher = Launcher::from_container(container, spec.is_in_a_pod());
    let launchers = match container.is_hypothetical() && container.ended.is_none() {
        true => Launcher::find_all(config),
        false => vec![launcher],
    };
    let Requests {
        classes,
        unrequested,
        mut findings,
    } = requested::requests(spec, &launchers, config);
    let root = container.pid.map(RunningRoot::from_pid);
    if classes.is_empty() {
        findings.extend(examine_unrequested(
            container,
            spec,
            unrequested,
            root.as_ref(),
            launcher,
        ));
        return findings;
    }
    if has_fault(&findings) {
        return findings;
    }
    let plan = match planner::plan_for(&spec.bundle, &Caller::Inspect, config) {
        Ok(plan) => plan,
        Err(error) => {
            let fault = granted::fault_of(&error);
            let text = log::chain(&error);
            findings.push(Finding::fault(fault, "plan", text));
            return findings;
        }
    };
    findings.extend(granted::findings(&plan, spec, &classes, verbose));
    findings.extend(capabilities::findings(&plan, &launchers));
    if has_fault(&findings) {
        return findings;
    }
    let missing = root.as_ref().map(|root| root.missing(&plan));
    let all_there = matches!(&missing, Some(Ok(missing)) if missing.is_empty());
    let is_attached = |grant: &Grant| grant.given_by.is_user();
    let is_given = |grant: &Grant| !grant.devices.is_empty();
    let by_hook = !plan.grants.iter().all(is_attached);
    let gives = by_hook
        && (!plan.steps.is_empty() || plan.is_waiting() || plan.grants.iter().any(is_given));
    // A container that only waits needs the hook, which records what it waits for.
    let all_there = all_there && !(plan.steps.is_empty() && plan.is_waiting());
    if gives && let Some(ended) = &container.ended {
        findings.extend(hook_entry::finding_of_ended(ended, launcher));
    } else if gives && !container.is_hypothetical() {
        findings.push(hook_entry::finding(launcher, spec, all_there));
    }
    let (Some(root), Some(missing)) = (&root, missing) else {
        return findings;
    };
    let repair = Repair {
        container,
        plan: &plan,
        classes: &classes,
        launcher,
        host_root: &config.host_root,
    };
    let nodes = &spec.bundle.spec_devices.nodes;
    let masked = plan.find_masked_steps(&spec.bundle.masked_paths.masked);
    let is_masked = |path: &String| {
        let mut steps = masked.values();
        steps.any(|steps| steps.paths.contains(Path::new(path)))
    };
    let checks: [&dyn Fn() -> Option<Finding>; 3] = [
        &|| {
            let all = "everything that the plan has is in the container";
            Some(match &missing {
                Ok(missing) if !missing.is_empty() && missing.iter().all(is_masked) => {
                    injected::masked_finding(missing)
                }
                _ => injected::finding(missing.clone(), all, &repair.describe_absence()),
            })
        },
        &|| rules::finding(container, &plan, &repair.describe_denial()),
        &|| user::finding(root, &plan, nodes, launcher),
    ];
    for check in checks {
        if has_fault(&findings) {
            break;
        }
        findings.extend(check());
    }
    findings
}

fn has_fault(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.fault.is_some())
}

/// Examines a container that requests no device. Such a container may still have nodes of a
/// class, for example by an engine's `--device`.
fn examine_unrequested(
    container: &Container,
    spec: &ContainerSpec,
    unrequested: Unrequested,
    root: Option<&RunningRoot>,
    launcher: Launcher,
) -> Vec<Finding> {
    if unrequested.is_empty() {
        return Vec::new();
    }
    let now = root.map(|root| {
        let fix = launcher.describe_replacement();
        let rules = rules::finding(container, &unrequested.plan, fix);
        let user = user::finding(root, &unrequested.plan, &[], launcher);
        rules.into_iter().chain(user)
    });
    let now: Vec<Finding> = now.into_iter().flatten().collect();
    let mut findings = unrequested.findings(spec, root);
    findings.extend(now);
    findings
}
