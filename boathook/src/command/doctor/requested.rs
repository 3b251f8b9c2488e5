//! Examines the requests of a container, and its environment variables whose names are probably
//! mistyped.

use device_class::collect_by_insertion;
use std::collections::BTreeSet;

use device_class::DeviceClass;
use device_class::config::Config;
use device_class::discover::{self, FoundClass, Health};
use device_class::load;
use device_class::name::excerpt;
use device_class::similar;
use device_class::strict_toml::FileError;
use hook::exit::ExitCode;
use hook::log::format_error_chain;
use hook::planner::{self, ContainerRequests};
use injection_plan::request::Request;

use super::spec::ContainerSpec;
use super::stale_nodes;
use super::unrequested::UnrequestedDevices;
use crate::command::example::find_example_device;
use crate::command::finding::{Finding, Severity};
use crate::command::launcher::{DeliveryMethods, Launcher};
use crate::command::unknown_variable::{
    describe_index_variables, is_default_variable_name, list_variables,
};

pub(super) const SUBJECT: &str = "request";

#[derive(Default)]
pub(super) struct ExaminedRequests {
    pub(super) classes: Vec<DeviceClass>,
    /// The devices that the container has without a request, because config.json contains their
    /// device nodes. They are searched only if the container requests nothing.
    pub(super) unrequested_devices: UnrequestedDevices,
    pub(super) findings: Vec<Finding>,
}

/// Examines the requests of a container. The advice in the findings is for `launchers`, because one
/// of them probably started the container. `runtime_name` is `None` if the engine's runtime is not
/// known.
pub(super) fn examine_requests(
    spec: &ContainerSpec,
    launchers: &[Launcher],
    runtime_name: Option<&str>,
    config: &Config,
) -> ExaminedRequests {
    let sources = match load::read_each_source(&config.classes) {
        Ok(sources) => sources,
        Err(error) => {
            return with_single_finding(Finding::new_fault(
                ExitCode::Config,
                "classes",
                format_error_chain(&error),
            ));
        }
    };
    if sources.is_empty() {
        return with_single_finding(Finding::new_missing_class_files(
            config,
            Some(ExitCode::Config),
        ));
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
            Err(_)
                if source
                    .as_ref()
                    .is_ok_and(|source| config.ignores_errors_of(source)) =>
            {
                continue;
            }
            Err(error) => {
                findings.push(Finding::new(
                    Severity::Warning,
                    "class",
                    format_error_chain(&error),
                ));
                continue;
            }
        };
        for (request, _) in container_requests
            .parse_attach_requests(&class)
            .unwrap_or_default()
        {
            let text = format!("{}, of class {}", request.source, class.name);
            findings.push(Finding::new(Severity::Ok, SUBJECT, text));
            classes.push(class.clone());
        }
        match container_requests.find_container_request(&class) {
            Ok(None) => {}
            Ok(Some((request, _))) => {
                let text = format!("{} of class {}", request.source, class.name);
                findings.push(Finding::new(Severity::Ok, SUBJECT, text));
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
    let stale_findings =
        stale_nodes::examine_stale_nodes(spec, &known_classes, launchers.first().copied(), config);
    let has_stale_fault = stale_findings.iter().any(|finding| finding.fault.is_some());
    findings.extend(stale_findings);
    let has_no_request = classes.is_empty() && !is_refused;
    let unrequested_devices = if has_no_request {
        UnrequestedDevices::find(spec, &known_classes, config)
    } else {
        UnrequestedDevices::default()
    };
    if has_no_request && unrequested_devices.is_empty() && !has_stale_fault {
        findings.extend(explain_missing_request(
            spec,
            launchers,
            runtime_name,
            &known_classes,
            config,
        ));
    } else {
        let similar_variables = find_similar_variables(spec, &known_classes);
        findings.extend(
            similar_variables.map(|(text, _)| Finding::new(Severity::Warning, SUBJECT, text)),
        );
    }
    ExaminedRequests {
        classes,
        unrequested_devices,
        findings,
    }
}

fn with_single_finding(finding: Finding) -> ExaminedRequests {
    ExaminedRequests {
        findings: vec![finding],
        ..ExaminedRequests::default()
    }
}

fn explain_missing_request(
    spec: &ContainerSpec,
    launchers: &[Launcher],
    runtime_name: Option<&str>,
    known_classes: &[DeviceClass],
    config: &Config,
) -> Vec<Finding> {
    let names: Vec<&str> = spec.bundle.env.names().collect();
    let index_variables = describe_index_variables(&names, known_classes, config);
    let similar_variables = find_similar_variables(spec, known_classes);
    let similar_findings = similar_variables.chain(index_variables).map(|(text, fix)| {
        let finding = Finding::new_fault(ExitCode::SimilarVariable, SUBJECT, text);
        finding.with_fix(fix)
    });
    let findings: Vec<Finding> = similar_findings.collect();
    if !findings.is_empty() {
        return findings;
    }
    let text = "the container sets no variable of any class, so nothing is done for it";
    let is_unrelated = |class: &DeviceClass| !is_related_to_container(class, spec, runtime_name);
    let fix = match find_example_device(known_classes, is_unrelated, config) {
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

/// Returns whether the user probably wants a device of this class. This is the case if the class
/// replaces the vendor's runtime with the name `runtime_name`, or if the image sets a variable with
/// the vendor's prefix.
fn is_related_to_container(
    class: &DeviceClass,
    spec: &ContainerSpec,
    runtime_name: Option<&str>,
) -> bool {
    let class_runtimes = class
        .spec
        .compatibility
        .iter()
        .flat_map(|compatibility| &compatibility.runtimes);
    let is_class_runtime = class_runtimes
        .map(ToString::to_string)
        .any(|class_runtime| Some(&*class_runtime) == runtime_name);
    let prefixes = list_variables(&class.spec).filter_map(|name| Some(name.split_once('_')?.0));
    let mut prefixes = prefixes.filter(|prefix| prefix.len() > 2);
    is_class_runtime
        || prefixes.any(|prefix| {
            let mut names = spec.bundle.env.names();
            names.any(|name| {
                name.strip_prefix(prefix)
                    .is_some_and(|rest| rest.starts_with('_'))
            })
        })
}

/// Looks for environment variables whose names are probably mistyped class variables. Returns the
/// text and the fix of a finding for each one.
fn find_similar_variables(
    spec: &ContainerSpec,
    known_classes: &[DeviceClass],
) -> impl Iterator<Item = (String, String)> {
    let class_variables: BTreeSet<&str> =
        collect_by_insertion(known_classes.iter().flat_map(|c| list_variables(&c.spec)));
    let container_variables: BTreeSet<&str> = collect_by_insertion(spec.bundle.env.names());
    let mut suggestions = Vec::new();
    for container_variable in container_variables.difference(&class_variables) {
        let has_other_name = |class: &&DeviceClass| {
            let mut other_names = class.spec.request.other_env.iter();
            other_names.any(|name| name.as_str() == *container_variable)
        };
        for class in known_classes.iter().filter(has_other_name) {
            let (variable, class) = (&class.spec.request.env, &class.name);
            suggestions.push((
                format!("{container_variable} requests nothing; class {class} has {variable}"),
                format!("set {variable} instead of {container_variable}"),
            ));
        }
        let candidates = class_variables.iter().copied();
        let candidates =
            candidates.filter(|variable| similar::is_typo(container_variable, variable));
        let named_after_class = || {
            let mut classes = known_classes.iter();
            let class =
                classes.find(|class| is_default_variable_name(container_variable, class))?;
            Some(class.spec.request.env.as_str())
        };
        let similar_name = similar::find_most_similar(container_variable, candidates);
        let Some(similar_name) = similar_name.or_else(named_after_class) else {
            continue;
        };
        let has_variable = |class: &&DeviceClass| {
            list_variables(&class.spec).any(|variable_name| variable_name == similar_name)
        };
        for class in known_classes.iter().filter(has_variable) {
            let (container_variable, class) = (excerpt(container_variable), &class.name);
            suggestions.push((
                format!(
                    "{container_variable} is set but belongs to no class; did you mean {similar_name} of class {class}?"
                ),
                format!("set {similar_name} instead of {container_variable}"),
            ));
        }
    }
    suggestions.into_iter()
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
        // Device nodes that are missing on the host are not reported here, because the injection
        // plan reports them.
        let unclaimed_hardware_reports = discover::describe_unclaimed_hardware(class, &host);
        Ok((found_class, unclaimed_hardware_reports))
    });
    let (FoundClass { inventory, edits }, unclaimed_hardware_reports) = match lookup_result {
        Ok(found_class_and_reports) => found_class_and_reports,
        Err(text) => return vec![Finding::new_fault(ExitCode::Config, subject, text)],
    };
    let to_warning = |text: &String| Finding::new(Severity::Warning, subject.clone(), text);
    let is_given_away = !unclaimed_hardware_reports.is_empty()
        && unclaimed_hardware_reports
            .iter()
            .all(|report| report.is_intended);
    let mut findings: Vec<Finding> = inventory
        .warnings
        .iter()
        .map(to_warning)
        .chain(
            unclaimed_hardware_reports
                .into_iter()
                .map(|report| Finding::from_hardware_report(&subject, report)),
        )
        .collect();
    let devices = &inventory.devices;
    if devices.is_empty() {
        let reason = inventory.missing_driver_message.as_deref();
        let text = match reason {
            Some(reason) => format!("no device on this host: {reason}"),
            None => "no device on this host".to_owned(),
        };
        let awaited_devices = request.selection.find_awaited_devices(class, &inventory);
        let is_waiting = awaited_devices.is_ok_and(|awaited_devices| !awaited_devices.is_empty());
        if class.spec.is_followed && !is_in_a_pod && is_waiting {
            findings.push(Finding::new(Severity::Note, subject, text + " yet"));
            return findings;
        }
        let finding = Finding::new_fault(ExitCode::NoDevice, subject, text);
        let mut fix = if is_given_away {
            "see the note about the hardware that is given to virtual machines".to_owned()
        } else {
            "check that the hardware is there and its driver is loaded; `boathook class check \
             FILE` shows what the class matches"
                .to_owned()
        };
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
                findings.push(to_warning(&format!("{} is unhealthy: {reason}", device.id)));
            }
        }
    }
    for reason in edits.unusable_reasons() {
        let finding = Finding::new_fault(ExitCode::NoDevice, subject.clone(), reason);
        findings.push(
            match planner::describe_classes_with_resource(class, config) {
                Some(others) => finding.with_fix(others),
                None => finding,
            },
        );
    }
    let text = format!("{healthy_count} of {} devices healthy", devices.len());
    findings.push(match healthy_count {
        0 => Finding::new_fault(ExitCode::NoDevice, subject, text),
        _ => Finding::new(Severity::Ok, subject, text),
    });
    findings
}
