//! Checks the class files of this host, and whether the devices of each class are usable in
//! containers.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use device_class::class::NameOwners;
use device_class::config::Config;
use device_class::discover::{self, FoundClass, Health};
use device_class::load::{self, ClassSource};
use device_class::name::ClassName;
use device_class::strict_toml::FileError;
use device_class::{DeviceClass, HostView, collect_by_insertion};
use hook::log::format_error_chain;
use hook::planner;
use injection_plan::plan::{self, Authority, PlanInput, SpecDevices};
use injection_plan::request::{Environment, Request};

use crate::command::finding::{Finding, FindingKind, Severity};
use crate::command::{CommandError, select_sources};

const NO_DEVICE_TEXT: &str = "no device on this host";

/// Checks the classes `class_names`, or all classes if `class_names` is empty.
pub(super) fn check_classes(
    class_names: &[ClassName],
    config: &Config,
) -> Result<Vec<Finding>, CommandError> {
    let host = planner::open_host(config)?;
    let sources = load::read_each_source(&config.classes)?;
    let mut findings = report_ignored_files(&config.classes);
    findings.extend(report_unknown_classes(&sources, config));
    if sources.is_empty() {
        findings.push(Finding::new_missing_class_files(config, None));
    }
    let mut name_owners = NameOwners::default();
    let mut classes_without_devices = Vec::new();
    for source in select_sources(class_names, sources)? {
        let is_named = !class_names.is_empty();
        if let Ok(source) = &source
            && !is_named
            && config.ignores_errors_of(source)
            && config.class(source).is_err()
        {
            continue;
        }
        let class_name = source.as_ref().ok().map(|source| source.name.to_string());
        let class_findings = check_class(source, is_named, config, &host, &mut name_owners);
        match class_findings.as_slice() {
            // Most hosts have devices of only a few classes. One finding lists all classes that
            // have no devices.
            [finding] if class_names.is_empty() && finding.kind == FindingKind::NoDevice => {
                classes_without_devices.extend(class_name);
            }
            _ => findings.extend(class_findings),
        }
    }
    if !classes_without_devices.is_empty() {
        let text = format!("{NO_DEVICE_TEXT}: {}", classes_without_devices.join(", "));
        findings.push(Finding::new(Severity::Ok, "classes", text));
    }
    Ok(findings)
}

fn check_class(
    source: Result<ClassSource, FileError>,
    is_named: bool,
    config: &Config,
    host: &dyn HostView,
    name_owners: &mut NameOwners,
) -> Vec<Finding> {
    let subject = match &source {
        Ok(source) => format!("class {}", source.name),
        Err(_) => "classes".to_owned(),
    };
    let to_error_findings = |text| vec![Finding::new(Severity::Error, subject.clone(), text)];
    let class = match source.and_then(|source| config.class(&source)) {
        Ok(class) => class,
        Err(problem) => return to_error_findings(format_error_chain(&problem)),
    };
    if let Err(conflict) = name_owners.claim_request_variable(&class) {
        return to_error_findings(conflict.to_string());
    }
    let request = match create_request_for_all(&class) {
        Ok(request) => request,
        Err(problem) => return to_error_findings(problem),
    };
    let found_class = match discover::look_up_class(&class, request.edit_selection(), host) {
        Ok(found_class) => found_class,
        Err(problem) => return to_error_findings(format_error_chain(&problem)),
    };
    if class.spec.is_enabled
        && let Err(conflict) = register_resources(&class, &found_class, name_owners)
    {
        return to_error_findings(conflict);
    }
    let mut findings = check_devices(&subject, &class, &request, &found_class);
    if !found_class.inventory.devices.is_empty() {
        let message = discover::describe_due_run(&class, host);
        findings.extend(message.map(|message| Finding::new(Severity::Warning, &subject, message)));
    }
    let hardware_reports = discover::describe_unusable_hardware(
        &class,
        is_named,
        request.edit_selection(),
        &found_class.inventory,
        host,
    );
    let hardware_findings = hardware_reports
        .into_iter()
        .map(|report| Finding::from_hardware_report(&subject, report));
    findings.extend(hardware_findings);
    findings
}

/// Registers the resource names of `class` in `name_owners`. Returns an error if another class has
/// registered one of the names. Two classes must not have the same resource name, because the
/// plugin sets the environment variable of one class in containers that request the resource.
fn register_resources(
    class: &DeviceClass,
    found_class: &FoundClass,
    name_owners: &mut NameOwners,
) -> Result<(), String> {
    // The resource name is not fixed if the class file builds it from attributes of a device.
    let class_resource = &class.spec.resource;
    let has_attributes = class_resource.attributes().next().is_some();
    let fixed_resource = (!has_attributes).then(|| class_resource.to_string());
    let devices = found_class.inventory.devices.iter();
    let resources = devices.map(|device| device.resource.to_string());
    let count_resource = class.spec.count_resource().map(String::from);
    for resource in resources.chain(fixed_resource).chain(count_resource) {
        name_owners
            .claim_name(&resource, &class.name)
            .map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Returns the request of a container that sets the environment variable of the class to `all`,
/// such as `DUMMY_VISIBLE_DEVICES=all`.
fn create_request_for_all(class: &DeviceClass) -> Result<Request, String> {
    let environment = Environment::from(vec![format!("{}=all", class.spec.request.env)]);
    match Request::find(class, &environment, |_| None) {
        Ok(Some(request)) => Ok(request),
        Ok(None) => Err(format!("{} = all requests nothing", class.spec.request.env)),
        Err(error) => Err(format_error_chain(&error)),
    }
}

fn check_devices(
    subject: &str,
    class: &DeviceClass,
    request: &Request,
    found_class: &FoundClass,
) -> Vec<Finding> {
    let inventory = &found_class.inventory;
    let to_warning = |text: String| Finding::new(Severity::Warning, subject, text);
    let mut findings: Vec<Finding> = inventory.warnings.iter().cloned().map(to_warning).collect();
    // A class can say with `uniform` which property all devices of one resource must share. Devices
    // whose values differ are counted as unhealthy, as in `boathook list`: a container that
    // requests the resource could not choose among them.
    let mut offered_inventory = inventory.clone();
    offered_inventory.mark_mixed_devices_unhealthy(class);
    let devices = &offered_inventory.devices;
    if devices.is_empty() {
        let hidden_count = offered_inventory.hidden_ids.len();
        findings.push(if hidden_count > 0 {
            let text = format!(
                "{NO_DEVICE_TEXT} that config.toml does not hide (it hides {hidden_count})"
            );
            Finding::new(Severity::Ok, subject, text)
        } else {
            let text = match &inventory.missing_driver_message {
                Some(reason) => format!("{NO_DEVICE_TEXT}: {reason}"),
                None => NO_DEVICE_TEXT.to_owned(),
            };
            Finding::new(Severity::Ok, subject, text).with_kind(FindingKind::NoDevice)
        });
        return findings;
    }
    for device in &inventory.inaccessible_devices {
        let text = format!("{} is absent: {}", device.id, device.reason);
        findings.push(Finding::new(Severity::Note, subject, text));
    }
    for device in devices {
        if let Health::Unhealthy { reason } = &device.health {
            findings.push(to_warning(format!("{} is unhealthy: {reason}", device.id)));
        }
    }
    let healthy_devices = devices.iter().filter(|device| device.health.is_healthy());
    let text = format!(
        "{} of {} devices healthy",
        healthy_devices.count(),
        devices.len()
    );
    // Without a healthy device, planning a request for all devices would fail. The warnings already
    // say why no device is healthy, so no plan is made.
    if !inventory
        .devices
        .iter()
        .any(|device| device.health.is_healthy())
    {
        findings.push(Finding::new(Severity::Ok, subject, text));
        return findings;
    }
    let authority = Authority::Requester {
        reason: "boathook check".to_owned(),
        allows_trusted_capabilities: true,
    };
    let input = PlanInput {
        class,
        request,
        found_class,
        authority: &authority,
    };
    if let Err(error) = plan::plan_injection(&[input], &SpecDevices::default()) {
        let text = format!(
            "a container that requests devices would be refused: {}",
            format_error_chain(&error)
        );
        findings.push(Finding::new_error_with_hint(subject, &text));
        return findings;
    }
    findings.push(Finding::new(Severity::Ok, subject, text));
    findings
}

/// Returns a finding for each file in the class directories that is ignored because of its name.
fn report_ignored_files(class_dirs: &[PathBuf]) -> Vec<Finding> {
    let directory_readers = class_dirs
        .iter()
        .filter_map(|directory| fs::read_dir(directory).ok());
    let paths = directory_readers
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let ignored_paths: BTreeSet<PathBuf> =
        collect_by_insertion(paths.filter(|path| is_misnamed_class_file(path) && path.is_file()));
    let to_finding = |path: PathBuf| {
        let text = format!("{} is not read", path.display());
        Finding::new(Severity::Warning, "classes", text)
            .with_fix("name a class file CLASS.toml, or move the file elsewhere")
    };
    ignored_paths.into_iter().map(to_finding).collect()
}

/// Returns whether the hook ignores the file although the file is probably a class file: its name
/// does not end in `.toml`, it is not hidden, and it is not a README.
fn is_misnamed_class_file(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    !name.starts_with('.') && !name.starts_with("README") && !name.ends_with(".toml")
}

/// Returns a finding for each table `[class.NAME]` of config.toml whose class does not exist, for
/// example because the name is mistyped.
fn report_unknown_classes(
    sources: &[Result<ClassSource, FileError>],
    config: &Config,
) -> Vec<Finding> {
    // If a class file cannot be read, a table of config.toml may be for its class. So nothing is
    // reported in this case.
    if sources.iter().any(Result::is_err) {
        return Vec::new();
    }
    let known_sources = sources.iter().flatten();
    let unknown_classes =
        config.find_unknown_classes(known_sources.map(|source| source.name.as_str()));
    let to_finding = |(name, similar_name): (&ClassName, Option<&str>)| {
        let text =
            format!("the configuration has a table [class.{name}], but there is no such class");
        let finding = Finding::new(Severity::Warning, "configuration", text);
        finding.with_fix(match similar_name {
            Some(similar_name) => format!("did you mean [class.{similar_name}]?"),
            None => "`boathook list` shows all classes".to_owned(),
        })
    };
    unknown_classes.map(to_finding).collect()
}
