//! `boathook doctor`: explains why a container has no device. The examination goes from the
//! container's config.json to the nodes that the container can open now. It changes nothing
//! and does not call the engine.

mod granted;
mod hook_entry;
mod injected;
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

use super::containers::{self, Container, Unknown};
use super::finding::{Finding, Verdict, print_table};
use super::running_root::RunningRoot;
use super::{CommandError, log, print_json};
use crate::cli::ContainerSelector;
use crate::exit::ExitCode;
use crate::planner::{self, Caller};

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
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let (containers, unknown) = match containers::find(whose, root, &config.host_root) {
        Ok(containers) => (containers, None),
        Err(unknown) => (Vec::new(), Some(unknown)),
    };
    let mut examined: Vec<Examination> = containers
        .into_iter()
        .map(|container| examine(container, whose, config))
        .collect();
    examined.extend(unknown.map(|unknown| nobody(unknown, config)));
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

/// Finds the bundle of a container of this host. The container is named by its id, its name, or
/// the first characters of its id.
pub(super) fn bundle_of(container: &str, config: &Config) -> Result<PathBuf, CommandError> {
    let found = containers::named(container, None, &config.host_root);
    let found = found.map_err(CommandError::no_container)?;
    found.bundle.ok_or_else(|| CommandError::NoContainer {
        reason: format!("the bundle of container {} is not known", found.id),
        hint: "give its directory: --bundle DIR".to_owned(),
    })
}

fn print(examination: &Examination, out: &mut impl Write) -> io::Result<()> {
    print_table(out, &examination.findings)?;
    if examination.fault().is_none() {
        writeln!(out, "\nno fault found")?;
    }
    Ok(())
}

/// Returns the examination of a container that does not exist.
fn nobody(unknown: Unknown, config: &Config) -> Examination {
    let container = Container::named(&unknown.name);
    let finding = Finding::fault(ExitCode::NoContainer, "container", unknown.reason);
    let mut findings = vec![finding.fix(unknown.fix)];
    findings.extend(logged(&unknown.name, config));
    Examination {
        container,
        findings,
    }
}

fn examine(container: Container, whose: &ContainerSelector, config: &Config) -> Examination {
    let mut findings = Vec::new();
    if !container.is_hypothetical() {
        findings.push(Finding::new(
            Verdict::Ok,
            "container",
            container.to_string(),
        ));
    }
    match ContainerSpec::read(&container, &whose.env, &config.host_root) {
        Ok(spec) => findings.extend(examine_spec(&container, &spec, config)),
        Err(error) => {
            let text = log::chain(&error);
            findings.push(Finding::fault(ExitCode::Spec, "config.json", text));
        }
    }
    if !container.id.is_empty() {
        findings.extend(logged(&container.id, config));
    }
    Examination {
        container,
        findings,
    }
}

/// Examines a container from its request to its present state. The examination stops at a
/// request that is refused, because later findings would only repeat the refusal.
fn examine_spec(container: &Container, spec: &ContainerSpec, config: &Config) -> Vec<Finding> {
    let Requests {
        classes,
        unrequested,
        mut findings,
    } = requested::requests(spec, config);
    let root = container.pid.map(RunningRoot::from_pid);
    if classes.is_empty() {
        findings.extend(examine_unrequested(
            container,
            spec,
            unrequested,
            root.as_ref(),
        ));
        return findings;
    }
    let plan = match planner::plan_for(&spec.bundle, &Caller::User, config) {
        Ok(plan) => plan,
        Err(error) => {
            let fault = granted::fault_of(&error);
            let text = log::chain(&error);
            findings.push(Finding::fault(fault, "plan", text));
            return findings;
        }
    };
    findings.extend(granted::findings(&plan, spec, &classes));
    let missing = root.as_ref().map(|root| root.missing(&plan));
    let all_there = matches!(&missing, Some(Ok(missing)) if missing.is_empty());
    let is_attached = |grant: &Grant| grant.given_by.is_user();
    let is_given = |grant: &Grant| !grant.devices.is_empty();
    let by_hook = !plan.grants.iter().all(is_attached);
    let gives = by_hook
        && (!plan.steps.is_empty() || plan.is_waiting() || plan.grants.iter().any(is_given));
    // A container that only waits needs the hook, which records what it waits for.
    let all_there = all_there && !(plan.steps.is_empty() && plan.is_waiting());
    if !container.is_hypothetical() && gives {
        findings.push(hook_entry::finding(container, spec, all_there));
    }
    if let (Some(root), Some(missing)) = (&root, missing) {
        let masked = plan.find_masked_steps(&spec.bundle.masked_paths.masked);
        let is_masked = |path: &String| {
            let mut steps = masked.values();
            steps.any(|steps| steps.paths.contains(Path::new(path)))
        };
        let fix = match &missing {
            Ok(missing) if !missing.is_empty() && missing.iter().all(is_masked) => {
                "create the container again, with the runtime boathook or without the masks that \
                 the warning names"
            }
            _ => {
                "create the container again: the hook acts when a container is created, and \
                 devices or classes that came later are not added"
            }
        };
        findings.push(injected::finding(
            missing,
            "everything that the plan has is in the container",
            fix,
        ));
        findings.extend(rules::finding(container, &plan));
        let nodes = &spec.bundle.spec_devices.nodes;
        findings.extend(user::finding(root, &plan, nodes));
    }
    findings
}

/// Examines a container that requests no device. Such a container may still have nodes of a
/// class, for example by an engine's `--device`.
fn examine_unrequested(
    container: &Container,
    spec: &ContainerSpec,
    unrequested: Unrequested,
    root: Option<&RunningRoot>,
) -> Vec<Finding> {
    if unrequested.is_empty() {
        return Vec::new();
    }
    let now = root.map(|root| {
        let rules = rules::finding(container, &unrequested.plan);
        rules
            .into_iter()
            .chain(user::finding(root, &unrequested.plan, &[]))
    });
    let now: Vec<Finding> = now.into_iter().flatten().collect();
    let mut findings = unrequested.findings(spec, root);
    findings.extend(now);
    findings
}

/// Returns the log messages of the hook and of boathook-runtime about a container. The log is
/// needed because a runtime drops the messages of a hook that succeeds, and an engine drops
/// the messages of a container that failed.
fn logged(id: &str, config: &Config) -> Vec<Finding> {
    const SHOWN: usize = 5;
    let note = |line: String| Finding::new(Verdict::Note, "log", line);
    match log::node_log(&config.host_root) {
        Ok(mut lines) => {
            lines.retain(|line| is_about(line, id));
            lines.drain(..lines.len().saturating_sub(SHOWN));
            lines.into_iter().map(note).collect()
        }
        Err(error) => {
            let text = log::chain(&error);
            vec![Finding::new(Verdict::Warning, "log", text)]
        }
    }
}

/// Returns whether a log line names the container. The id is compared with whole words,
/// because the id of another container may contain the same letters.
fn is_about(line: &str, id: &str) -> bool {
    let mut words = line.split(|c: char| !(c.is_alphanumeric() || "_.-/".contains(c)));
    words.any(|word| word == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_about_the_container_that_it_names() {
        let line = "2026-11-22 boathook: container c1: env X=9: no device";
        assert!(is_about(line, "c1"));
        assert!(!is_about(line, "c"));
        assert!(!is_about("boathook: container 4fc1aa: no device", "c1"));
    }
}
