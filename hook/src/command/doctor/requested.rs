//! Examines the requests of the container, and variables that are similar to requests.

use device_class::inserted;
use std::collections::BTreeSet;

use device_class::DeviceClass;
use device_class::class::ClassSpec;
use device_class::config::Config;
use device_class::discover::{self, Device, FoundClass, Health};
use device_class::load::{self, ClassSource};
use device_class::name::excerpt;
use device_class::similar;
use device_class::strict_toml::FileError;
use injection_plan::request::{Awaited, Request};

use super::spec::ContainerSpec;
use super::stale_nodes;
use super::unrequested::Unrequested;
use crate::command::engine_words::Launcher;
use crate::command::finding::{Finding, Verdict};
use crate::exit::ExitCode;
use crate::log::chain;
use crate::planner::{self, ContainerRequests};

const SUBJECT: &str = "request";

/// The classes whose devices the container requests, with the findings about the requests.
#[derive(Default)]
pub(super) struct Requests {
    pub(super) classes: Vec<DeviceClass>,
    /// The nodes of classes in config.json. Only filled if the container requests nothing.
    pub(super) unrequested: Unrequested,
    pub(super) findings: Vec<Finding>,
}

/// Finds the requests. `launchers` are those that may have created the container; advice has their
/// words.
pub(super) fn requests(spec: &ContainerSpec, launchers: &[Launcher], config: &Config) -> Requests {
    let sources = match load::each_source(&config.classes) {
        Ok(sources) => sources,
        Err(error) => return nothing(Finding::fault(ExitCode::Config, "classes", chain(&error))),
    };
    if sources.is_empty() {
        return nothing(Finding::no_class_file(config, Some(ExitCode::Config)));
    }
    let (mut classes, mut findings, mut known) = (Vec::new(), Vec::new(), Vec::new());
    let origin = spec.origin().ok();
    let requested = ContainerRequests::new(&spec.bundle, origin.as_ref());
    let unknown = requested.unknown_classes(&sources);
    findings
        .extend(unknown.map(|class| Finding::fault(ExitCode::Request, SUBJECT, class.to_string())));
    for source in &sources {
        let file = planner::class_file(source);
        let class = source.as_ref().map_err(FileError::clone);
        let class = match class.and_then(|source| config.class(source)) {
            Ok(class) => class,
            Err(error) if requested.requests_class_of_file(file, &sources, config) => {
                findings.push(Finding::fault(ExitCode::Config, "class", chain(&error)));
                continue;
            }
            Err(error) => {
                findings.push(Finding::new(Verdict::Warning, "class", chain(&error)));
                continue;
            }
        };
        for (request, _) in requested.attached_requests(&class).unwrap_or_default() {
            let text = format!("{}, of class {}", request.source, class.name);
            findings.push(Finding::new(Verdict::Ok, SUBJECT, text));
            classes.push(class.clone());
        }
        match requested.request_for(&class) {
            Ok(None) => {}
            Ok(Some((request, _))) => {
                let text = format!("{} of class {}", request.source, class.name);
                findings.push(Finding::new(Verdict::Ok, SUBJECT, text));
                findings.extend(on_host(
                    &class,
                    &request,
                    &sources,
                    spec.is_in_a_pod(),
                    config,
                ));
                classes.push(class.clone());
            }
            Err(error) => {
                let text = chain(&error);
                findings.push(Finding::fault(ExitCode::Request, SUBJECT, text));
            }
        }
        known.push(class);
    }
    let is_refused = findings.iter().any(|finding| finding.fault.is_some());
    let stale = stale_nodes::findings(spec, &known, config);
    let has_stale = stale.iter().any(|finding| finding.fault.is_some());
    findings.extend(stale);
    let without_request = classes.is_empty() && !is_refused;
    let unrequested = match without_request {
        true => Unrequested::find(spec, &known, config),
        false => Unrequested::default(),
    };
    if without_request && unrequested.is_empty() && !has_stale {
        findings.extend(without(spec, launchers, &known, config));
    } else {
        let similar = similar_variables(spec, &known);
        findings.extend(similar.map(|(text, _)| Finding::new(Verdict::Warning, SUBJECT, text)));
    }
    Requests {
        classes,
        unrequested,
        findings,
    }
}

fn nothing(finding: Finding) -> Requests {
    Requests {
        findings: vec![finding],
        ..Requests::default()
    }
}

fn without(
    spec: &ContainerSpec,
    launchers: &[Launcher],
    known: &[DeviceClass],
    config: &Config,
) -> Vec<Finding> {
    let similar = similar_variables(spec, known).map(|(text, fix)| {
        let finding = Finding::fault(ExitCode::SimilarVariable, SUBJECT, text);
        finding.fix(fix)
    });
    let findings: Vec<Finding> = similar.collect();
    if !findings.is_empty() {
        return findings;
    }
    let text = "the container sets no variable of any class, so nothing is done for it";
    let fix = match find_example(known, config) {
        Some((class, device)) => {
            let (env, resource) = (&class.spec.request.env, device.resource.to_string());
            let request = |launcher: &Launcher| {
                launcher.describe_request(env.as_str(), device.id.as_str(), &resource)
            };
            let requests: Vec<String> = launchers.iter().map(request).collect();
            format!(
                "request a device, such as {} of class {}: {}. `boathook list` shows all",
                device.id,
                class.name,
                requests.join("; or ")
            )
        }
        None => "this host has no device of any class: `boathook list -v` names the classes, and \
                 `boathook class new /dev/NODE` writes one for your own device"
            .to_owned(),
    };
    vec![Finding::fault(ExitCode::NoRequest, SUBJECT, text).fix(fix)]
}

/// Returns a healthy device of this host. A class whose devices are virtual is the last choice.
fn find_example<'a>(
    known: &'a [DeviceClass],
    config: &Config,
) -> Option<(&'a DeviceClass, Device)> {
    let host = planner::open_host(config).ok()?;
    let is_virtual = |class: &&DeviceClass| {
        let mut sources = class.spec.discover.iter();
        sources.all(|source| source.count.is_some())
    };
    let (made, found): (Vec<_>, Vec<_>) = known.iter().partition(is_virtual);
    found.into_iter().chain(made).find_map(|class| {
        let devices = discover::devices(class, &host).devices.into_iter();
        let mut healthy = devices.filter(|device| device.health.is_healthy());
        healthy.next().map(|device| (class, device))
    })
}

/// Reports variables whose names are similar to the variable of a class, with a fix for each.
fn similar_variables(
    spec: &ContainerSpec,
    known: &[DeviceClass],
) -> impl Iterator<Item = (String, String)> {
    let variables: BTreeSet<&str> = inserted(known.iter().flat_map(|c| variables_of(&c.spec)));
    let names: BTreeSet<&str> = inserted(spec.bundle.env.names());
    let mut found = Vec::new();
    for name in names.difference(&variables) {
        let may_mean = variables.iter().copied();
        let may_mean = may_mean.filter(|known| similar::is_typo(name, known));
        let Some(near) = similar::find_most_similar(name, may_mean) else {
            continue;
        };
        let has_it = |class: &&DeviceClass| variables_of(&class.spec).any(|own| own == near);
        for class in known.iter().filter(has_it) {
            let (name, class) = (excerpt(name), &class.name);
            found.push((
                format!(
                    "{name} is set but belongs to no class; did you mean {near} of class {class}?"
                ),
                format!("set {near} instead of {name}"),
            ));
        }
    }
    found.into_iter()
}

fn variables_of(spec: &ClassSpec) -> impl Iterator<Item = &str> {
    let request = &spec.request;
    let names = [Some(&request.env), request.capabilities_env.as_ref()];
    names.into_iter().flatten().map(|name| name.as_str())
}

/// Returns a fix that names the classes that have devices here and offer resources of the same
/// vendor, such as a vendor's class for virtual machines.
fn fix_by_other_classes(
    class: &DeviceClass,
    sources: &[Result<ClassSource, FileError>],
    config: &Config,
) -> Option<String> {
    let vendor = |class: &DeviceClass| {
        let resource = class.spec.resource.to_string();
        resource
            .split_once('/')
            .map(|(vendor, _)| vendor.to_owned())
    };
    let host = planner::open_host(config).ok()?;
    let others = sources.iter().filter_map(|source| source.as_ref().ok());
    let others = others.filter_map(|source| config.class(source).ok());
    let others = others.filter(|other| other.name != class.name && vendor(other) == vendor(class));
    let names = others.filter_map(|other| {
        let count = discover::devices(&other, &host).devices.len();
        let env = &other.spec.request.env;
        (count > 0).then(|| format!("class {} has {count} (variable {env})", other.name))
    });
    let names: Vec<String> = names.collect();
    if names.is_empty() {
        return None;
    }
    Some(format!(
        "of the devices on this host, {}: request those, or let a class file extend that class \
         (docs/class-tutorial.md)",
        names.join(", ")
    ))
}

fn on_host(
    class: &DeviceClass,
    request: &Request,
    sources: &[Result<ClassSource, FileError>],
    is_in_a_pod: bool,
    config: &Config,
) -> Vec<Finding> {
    let subject = format!("class {}", class.name);
    let found = planner::open_host(config).map_err(|error| chain(&error));
    let found = found.and_then(|host| {
        let found = discover::look_up(class, request.wanted(), &host);
        let found = found.map_err(|error| chain(&error))?;
        let lacks = match found.inventory.no_driver {
            // Another driver may have taken the hardware.
            Some(_) => discover::find_unclaimed(class, &host),
            None => discover::find_lacks(class, request.wanted(), &found.inventory, &host),
        };
        Ok((found, lacks))
    });
    let (FoundClass { inventory, edits }, lacks) = match found {
        Ok(found) => found,
        Err(text) => return vec![Finding::fault(ExitCode::Config, subject, text)],
    };
    let warning = |text: &String| Finding::new(Verdict::Warning, subject.clone(), text);
    let mut findings: Vec<Finding> = inventory
        .warnings
        .iter()
        .chain(&lacks)
        .map(warning)
        .collect();
    let devices = &inventory.devices;
    if devices.is_empty() {
        let reason = inventory.no_driver.as_deref();
        let text = match reason {
            Some(reason) => format!("no device on this host: {reason}"),
            None => "no device on this host".to_owned(),
        };
        let awaited = request.selection.awaited(class, &inventory);
        let awaited = awaited.unwrap_or_default();
        let waits_for_name = awaited.iter().any(|awaited| *awaited != Awaited::All);
        if class.spec.follow && !is_in_a_pod && waits_for_name {
            findings.push(Finding::new(Verdict::Note, subject, text + " yet"));
            return findings;
        }
        let finding = Finding::fault(ExitCode::NoDevice, subject, text);
        let mut fix = "check that the hardware is there and its driver is loaded; `boathook class \
                       check FILE` shows what the class matches"
            .to_owned();
        if let Some(others) = fix_by_other_classes(class, sources, config) {
            fix = format!("{others}. Otherwise {fix}");
        }
        findings.push(finding.fix(fix));
        return findings;
    }
    let mut healthy = 0;
    for device in devices {
        match &device.health {
            Health::Healthy => healthy += 1,
            Health::Unhealthy { reason } => {
                findings.push(warning(&format!("{} is unhealthy: {reason}", device.id)));
            }
        }
    }
    for reason in edits.unfit() {
        findings.push(Finding::fault(ExitCode::NoDevice, subject.clone(), reason));
    }
    let text = format!("{healthy} of {} devices healthy", devices.len());
    findings.push(match healthy {
        0 => Finding::fault(ExitCode::NoDevice, subject, text),
        _ => Finding::new(Verdict::Ok, subject, text),
    });
    findings
}
