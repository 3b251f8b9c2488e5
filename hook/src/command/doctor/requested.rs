//! Examines the requests of a container, and its variables that are probably mistyped requests.

use device_class::inserted;
use std::collections::BTreeSet;

use device_class::DeviceClass;
use device_class::class::ClassSpec;
use device_class::config::Config;
use device_class::discover::{self, FoundClass, Health};
use device_class::load;
use device_class::name::excerpt;
use device_class::similar;
use device_class::strict_toml::FileError;
use injection_plan::request::Request;

use super::spec::ContainerSpec;
use super::stale_nodes;
use super::unrequested::UnrequestedDevices;
use crate::command::engine_words::{DeliveryMethods, Launcher};
use crate::command::example::find_example;
use crate::command::finding::{Finding, Verdict};
use crate::exit::ExitCode;
use crate::log::format_error_chain;
use crate::planner::{self, ContainerRequests};

const SUBJECT: &str = "request";

/// The classes whose devices the container requests, with the findings about the requests.
#[derive(Default)]
pub(super) struct Requests {
    pub(super) classes: Vec<DeviceClass>,
    /// The device nodes of classes in config.json. They are searched only if the container requests
    /// nothing.
    pub(super) unrequested: UnrequestedDevices,
    pub(super) findings: Vec<Finding>,
}

/// Finds the requests of the container. The advice in the findings is written for `launchers`, with
/// which the user may have started the container. `runtime` is the name of the container's runtime,
/// if it is known.
pub(super) fn find_requests(
    spec: &ContainerSpec,
    launchers: &[Launcher],
    runtime: Option<&str>,
    config: &Config,
) -> Requests {
    let sources = match load::read_each_source(&config.classes) {
        Ok(sources) => sources,
        Err(error) => {
            return without_requests(Finding::new_fault(
                ExitCode::Config,
                "classes",
                format_error_chain(&error),
            ));
        }
    };
    if sources.is_empty() {
        return without_requests(Finding::no_class_file(config, Some(ExitCode::Config)));
    }
    let (mut classes, mut findings, mut known_classes) = (Vec::new(), Vec::new(), Vec::new());
    let origin = spec.origin().ok();
    let container_requests = ContainerRequests::new(&spec.bundle, origin.as_ref());
    let unknown_classes = container_requests.find_unknown_classes(&sources);
    findings.extend(
        unknown_classes
            .map(|class| Finding::new_fault(ExitCode::Request, SUBJECT, class.to_string())),
    );
    for source in &sources {
        let file = planner::class_file_path(source);
        let class = source.as_ref().map_err(FileError::clone);
        let class = match class.and_then(|source| config.class(source)) {
            Ok(class) => class,
            Err(error) if container_requests.requests_class_of_file(file, &sources, config) => {
                findings.push(Finding::new_fault(
                    ExitCode::Config,
                    "class",
                    format_error_chain(&error),
                ));
                continue;
            }
            Err(error) => {
                findings.push(Finding::new(
                    Verdict::Warning,
                    "class",
                    format_error_chain(&error),
                ));
                continue;
            }
        };
        for (request, _) in container_requests
            .parse_attached_requests(&class)
            .unwrap_or_default()
        {
            let text = format!("{}, of class {}", request.source, class.name);
            findings.push(Finding::new(Verdict::Ok, SUBJECT, text));
            classes.push(class.clone());
        }
        match container_requests.find_own_request(&class) {
            Ok(None) => {}
            Ok(Some((request, _))) => {
                let text = format!("{} of class {}", request.source, class.name);
                findings.push(Finding::new(Verdict::Ok, SUBJECT, text));
                findings.extend(examine_devices_on_host(
                    &class,
                    &request,
                    spec.is_in_a_pod(),
                    config,
                ));
                classes.push(class.clone());
            }
            Err(error) => {
                let text = format_error_chain(&error);
                findings.push(Finding::new_fault(ExitCode::Request, SUBJECT, text));
            }
        }
        known_classes.push(class);
    }
    let is_refused = findings.iter().any(|finding| finding.fault.is_some());
    let stale_findings = stale_nodes::examine_stale_nodes(spec, &known_classes, config);
    let has_stale_fault = stale_findings.iter().any(|finding| finding.fault.is_some());
    findings.extend(stale_findings);
    let has_no_request = classes.is_empty() && !is_refused;
    let unrequested = if has_no_request {
        UnrequestedDevices::find(spec, &known_classes, config)
    } else {
        UnrequestedDevices::default()
    };
    if has_no_request && unrequested.is_empty() && !has_stale_fault {
        findings.extend(explain_missing_request(
            spec,
            launchers,
            runtime,
            &known_classes,
            config,
        ));
    } else {
        let similar_variables = find_similar_variables(spec, &known_classes);
        findings.extend(
            similar_variables.map(|(text, _)| Finding::new(Verdict::Warning, SUBJECT, text)),
        );
    }
    Requests {
        classes,
        unrequested,
        findings,
    }
}

fn without_requests(finding: Finding) -> Requests {
    Requests {
        findings: vec![finding],
        ..Requests::default()
    }
}

fn explain_missing_request(
    spec: &ContainerSpec,
    launchers: &[Launcher],
    runtime: Option<&str>,
    known_classes: &[DeviceClass],
    config: &Config,
) -> Vec<Finding> {
    let similar_findings = find_similar_variables(spec, known_classes).map(|(text, fix)| {
        let finding = Finding::new_fault(ExitCode::SimilarVariable, SUBJECT, text);
        finding.with_fix(fix)
    });
    let findings: Vec<Finding> = similar_findings.collect();
    if !findings.is_empty() {
        return findings;
    }
    let text = "the container sets no variable of any class, so nothing is done for it";
    let rank = |class: &DeviceClass| !belongs_to_container(class, spec, runtime);
    let fix = match find_example(known_classes, rank, config) {
        Some(device) => {
            let methods = DeliveryMethods::find(config);
            let launchers = launchers.iter();
            let requests =
                launchers.map(|launcher| launcher.describe_available_request(&methods, &device));
            let requests: Vec<String> = requests.collect();
            format!(
                "request a device, such as {} of class {}: {}. `boathook list` shows all",
                device.id,
                device.class,
                requests.join("; or ")
            )
        }
        None => "this host has no device of any class: `boathook list -v` names the classes, and \
                 `boathook class new /dev/NODE` writes one for your own device"
            .to_owned(),
    };
    vec![Finding::new_fault(ExitCode::NoRequest, SUBJECT, text).with_fix(fix)]
}

/// Returns whether the class is related to the container: by the name of the container's runtime,
/// or by a variable that the image sets for other programs of the class's vendor.
fn belongs_to_container(class: &DeviceClass, spec: &ContainerSpec, runtime: Option<&str>) -> bool {
    let own_runtimes = class
        .spec
        .compatibility
        .iter()
        .flat_map(|compatibility| &compatibility.runtimes);
    let is_own_runtime = own_runtimes
        .map(ToString::to_string)
        .any(|own| Some(&*own) == runtime);
    let prefixes = list_variables(&class.spec).filter_map(|name| Some(name.split_once('_')?.0));
    let mut prefixes = prefixes.filter(|prefix| prefix.len() > 2);
    is_own_runtime
        || prefixes.any(|prefix| {
            let mut names = spec.bundle.env.names();
            names.any(|name| {
                name.strip_prefix(prefix)
                    .is_some_and(|rest| rest.starts_with('_'))
            })
        })
}

/// Returns a text and a fix for each variable of the container whose name resembles the name of a
/// class's variable.
fn find_similar_variables(
    spec: &ContainerSpec,
    known_classes: &[DeviceClass],
) -> impl Iterator<Item = (String, String)> {
    let variables: BTreeSet<&str> =
        inserted(known_classes.iter().flat_map(|c| list_variables(&c.spec)));
    let names: BTreeSet<&str> = inserted(spec.bundle.env.names());
    let mut suggestions = Vec::new();
    for name in names.difference(&variables) {
        let candidates = variables.iter().copied();
        let candidates = candidates.filter(|variable| similar::is_typo(name, variable));
        let Some(similar_name) = similar::find_most_similar(name, candidates) else {
            continue;
        };
        let has_variable =
            |class: &&DeviceClass| list_variables(&class.spec).any(|own| own == similar_name);
        for class in known_classes.iter().filter(has_variable) {
            let (name, class) = (excerpt(name), &class.name);
            suggestions.push((
                format!(
                    "{name} is set but belongs to no class; did you mean {similar_name} of class {class}?"
                ),
                format!("set {similar_name} instead of {name}"),
            ));
        }
    }
    suggestions.into_iter()
}

fn list_variables(spec: &ClassSpec) -> impl Iterator<Item = &str> {
    let request = &spec.request;
    let names = [Some(&request.env), request.capabilities_env.as_ref()];
    names.into_iter().flatten().map(|name| name.as_str())
}

fn examine_devices_on_host(
    class: &DeviceClass,
    request: &Request,
    is_in_a_pod: bool,
    config: &Config,
) -> Vec<Finding> {
    let subject = format!("class {}", class.name);
    let host_result = planner::open_host(config).map_err(|error| format_error_chain(&error));
    let lookup_result = host_result.and_then(|host| {
        let class_result = discover::look_up_class(class, request.edit_selection(), &host);
        let found_class = class_result.map_err(|error| format_error_chain(&error))?;
        // Nodes that are missing on the host are not reported here, because the injection plan
        // reports them.
        let unclaimed_reports = discover::describe_unclaimed_hardware(class, &host);
        Ok((found_class, unclaimed_reports))
    });
    let (FoundClass { inventory, edits }, unclaimed_reports) = match lookup_result {
        Ok(class_and_reports) => class_and_reports,
        Err(text) => return vec![Finding::new_fault(ExitCode::Config, subject, text)],
    };
    let warning = |text: &String| Finding::new(Verdict::Warning, subject.clone(), text);
    let mut findings: Vec<Finding> = inventory
        .warnings
        .iter()
        .chain(&unclaimed_reports)
        .map(warning)
        .collect();
    let devices = &inventory.devices;
    if devices.is_empty() {
        let reason = inventory.missing_driver_message.as_deref();
        let text = match reason {
            Some(reason) => format!("no device on this host: {reason}"),
            None => "no device on this host".to_owned(),
        };
        let awaited = request.selection.find_awaited_devices(class, &inventory);
        let is_waiting = awaited.is_ok_and(|awaited| !awaited.is_empty());
        if class.spec.is_followed && !is_in_a_pod && is_waiting {
            findings.push(Finding::new(Verdict::Note, subject, text + " yet"));
            return findings;
        }
        let finding = Finding::new_fault(ExitCode::NoDevice, subject, text);
        let mut fix = "check that the hardware is there and its driver is loaded; `boathook class \
                       check FILE` shows what the class matches"
            .to_owned();
        if class.spec.is_followed && !is_in_a_pod {
            fix = format!(
                "plug it in and start the container again; with `?` after the name, as in \
                 {}=NAME?, the container starts without it, and `boathook follow` adds it. \
                 Otherwise {fix}",
                class.spec.request.env
            );
        }
        if let Some(others) = planner::describe_other_classes(class, config) {
            fix = format!("{others}. Otherwise {fix}");
        }
        findings.push(finding.with_fix(fix));
        return findings;
    }
    let mut healthy_count = 0;
    for device in devices {
        match &device.health {
            Health::Healthy => healthy_count += 1,
            Health::Unhealthy { reason } => {
                findings.push(warning(&format!("{} is unhealthy: {reason}", device.id)));
            }
        }
    }
    for reason in edits.unusable_reasons() {
        findings.push(Finding::new_fault(
            ExitCode::NoDevice,
            subject.clone(),
            reason,
        ));
    }
    let text = format!("{healthy_count} of {} devices healthy", devices.len());
    findings.push(match healthy_count {
        0 => Finding::new_fault(ExitCode::NoDevice, subject, text),
        _ => Finding::new(Verdict::Ok, subject, text),
    });
    findings
}
