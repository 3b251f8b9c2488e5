//! Checks the class files of this host, and whether containers can get the devices of each class.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use device_class::class::NameOwners;
use device_class::config::Config;
use device_class::discover::{self, FoundClass, Health};
use device_class::facts::DriverFacts;
use device_class::load::{self, ClassSource};
use device_class::name::ClassName;
use device_class::strict_toml::FileError;
use device_class::{DeviceClass, HostView, inserted};
use injection_plan::plan::{self, Authority, PlanInput, SpecDevices};
use injection_plan::request::{Environment, Request};

use crate::command::finding::{Finding, Verdict};
use crate::command::{CommandError, select_sources};
use crate::log::format_error_chain;
use crate::planner;

const NO_DEVICE: &str = "no device on this host";

/// Checks the classes `names`, or all classes if `names` is empty.
pub(super) fn check_classes(
    names: &[ClassName],
    config: &Config,
) -> Result<Vec<Finding>, CommandError> {
    let host = planner::open_host(config)?;
    let sources = load::read_each_source(&config.classes)?;
    let mut findings = find_ignored_files(&config.classes);
    findings.extend(find_unknown_classes(&sources, config));
    if sources.is_empty() {
        findings.push(Finding::no_class_file(config, None));
    }
    let mut owners = NameOwners::default();
    let mut absent_classes = Vec::new();
    for source in select_sources(names, sources)? {
        let name = source.as_ref().ok().map(|source| source.name.to_string());
        let class_findings = check_class(source, config, &host, &mut owners);
        match class_findings.as_slice() {
            // Most hosts have devices of a few classes only, so all classes without devices are
            // reported in one finding.
            [finding] if names.is_empty() && finding.text == NO_DEVICE => {
                absent_classes.extend(name);
            }
            _ => findings.extend(class_findings),
        }
    }
    if !absent_classes.is_empty() {
        let text = format!("{NO_DEVICE}: {}", absent_classes.join(", "));
        findings.push(Finding::new(Verdict::Ok, "classes", text));
    }
    Ok(findings)
}

fn check_class(
    source: Result<ClassSource, FileError>,
    config: &Config,
    host: &dyn HostView,
    owners: &mut NameOwners,
) -> Vec<Finding> {
    let subject = match &source {
        Ok(source) => format!("class {}", source.name),
        Err(_) => "classes".to_owned(),
    };
    let error = |text| vec![Finding::new(Verdict::Error, subject.clone(), text)];
    let class = match source.and_then(|source| config.class(&source)) {
        Ok(class) => class,
        Err(problem) => return error(format_error_chain(&problem)),
    };
    if let Err(conflict) = owners.claim_request_variable(&class) {
        return error(conflict.to_string());
    }
    let request = match create_request_for_all(&class) {
        Ok(request) => request,
        Err(problem) => return error(problem),
    };
    let found_class = match discover::look_up_class(&class, request.edit_selection(), host) {
        Ok(found_class) => found_class,
        Err(problem) => return error(format_error_chain(&problem)),
    };
    if class.spec.is_enabled
        && let Err(conflict) = claim_resources(&class, &found_class, owners)
    {
        return error(conflict);
    }
    let mut findings = check_devices(&subject, &class, &request, &found_class);
    if !found_class.inventory.devices.is_empty() {
        let message = DriverFacts::describe_absence(&class, host);
        findings.extend(message.map(|message| Finding::new(Verdict::Warning, &subject, message)));
    }
    let missing_parts = discover::describe_lacks(
        &class,
        request.edit_selection(),
        &found_class.inventory,
        host,
    );
    for missing_part in missing_parts {
        findings.push(Finding::new(Verdict::Warning, &subject, missing_part));
    }
    findings
}

/// Records that `class` uses its resource names. Returns an error if another class uses one of
/// them too. A resource name must belong to one class, because the plugin sets the variable of that
/// class in containers that request the resource.
fn claim_resources(
    class: &DeviceClass,
    found_class: &FoundClass,
    owners: &mut NameOwners,
) -> Result<(), String> {
    // A resource name that contains attributes differs between devices, so the class has no fixed
    // name.
    let class_resource = &class.spec.resource;
    let has_attributes = class_resource.attributes().next().is_some();
    let fixed_resource = (!has_attributes).then(|| class_resource.to_string());
    let devices = found_class.inventory.devices.iter();
    let resources = devices.map(|device| device.resource.to_string());
    let count_resource = class.spec.count_resource().map(String::from);
    for resource in resources.chain(fixed_resource).chain(count_resource) {
        owners
            .claim_name(&resource, &class.name)
            .map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Returns the request of a container that sets the variable of the class to `all`.
fn create_request_for_all(class: &DeviceClass) -> Result<Request, String> {
    let env = Environment::from(vec![format!("{}=all", class.spec.request.env)]);
    match Request::find(class, &env, |_| None) {
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
    let warning = |text: String| Finding::new(Verdict::Warning, subject, text);
    let mut findings: Vec<Finding> = inventory.warnings.iter().cloned().map(warning).collect();
    // The plugin does not offer devices with mixed parts, so they are not counted as usable here.
    let mut offered_inventory = inventory.clone();
    offered_inventory.refuse_mixed_devices(class);
    let devices = &offered_inventory.devices;
    if devices.is_empty() {
        let text = match offered_inventory.hidden_ids.len() {
            0 => NO_DEVICE.to_owned(),
            hidden_count => {
                format!("{NO_DEVICE} that config.toml does not hide (it hides {hidden_count})")
            }
        };
        findings.push(Finding::new(Verdict::Ok, subject, text));
        return findings;
    }
    for device in devices {
        if let Health::Unhealthy { reason } = &device.health {
            findings.push(warning(format!("{} is unhealthy: {reason}", device.id)));
        }
    }
    let healthy_devices = devices.iter().filter(|device| device.health.is_healthy());
    let text = format!(
        "{} of {} devices healthy",
        healthy_devices.count(),
        devices.len()
    );
    // If no device is healthy, a plan for all devices would fail, and the warnings already contain
    // the reason.
    if !inventory
        .devices
        .iter()
        .any(|device| device.health.is_healthy())
    {
        findings.push(Finding::new(Verdict::Ok, subject, text));
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
        findings.push(Finding::error_with_hint(subject, &text));
        return findings;
    }
    findings.push(Finding::new(Verdict::Ok, subject, text));
    findings
}

/// Returns a finding for each file in the class directories that is ignored because of its name.
fn find_ignored_files(directories: &[PathBuf]) -> Vec<Finding> {
    let entries = directories
        .iter()
        .filter_map(|directory| fs::read_dir(directory).ok());
    let paths = entries.flatten().flatten().map(|entry| entry.path());
    let ignored_files: BTreeSet<PathBuf> =
        inserted(paths.filter(|path| is_ignored(path) && path.is_file()));
    let to_finding = |path: PathBuf| {
        let text = format!("{} is not read", path.display());
        Finding::new(Verdict::Warning, "classes", text)
            .with_fix("name a class file CLASS.toml, or move the file elsewhere")
    };
    ignored_files.into_iter().map(to_finding).collect()
}

/// Returns whether a file may be intended as a class file but is ignored because of its name.
/// Hidden files and READMEs are not intended as class files.
fn is_ignored(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    !name.starts_with('.') && !name.starts_with("README") && !name.ends_with(".toml")
}

/// Returns a finding for each class that config.toml configures but that does not exist.
fn find_unknown_classes(
    sources: &[Result<ClassSource, FileError>],
    config: &Config,
) -> Vec<Finding> {
    // The missing class could be in a class file that cannot be read, so nothing is reported.
    if sources.iter().any(Result::is_err) {
        return Vec::new();
    }
    let known_sources = sources.iter().flatten();
    let unknown_classes = config.unknown_classes(known_sources.map(|source| source.name.as_str()));
    let to_finding = |(name, similar_name): (&ClassName, Option<&str>)| {
        let text =
            format!("the configuration has a table [class.{name}], but there is no such class");
        let finding = Finding::new(Verdict::Warning, "configuration", text);
        finding.with_fix(match similar_name {
            Some(similar_name) => format!("did you mean [class.{similar_name}]?"),
            None => "`boathook list` shows all classes".to_owned(),
        })
    };
    unknown_classes.map(to_finding).collect()
}
