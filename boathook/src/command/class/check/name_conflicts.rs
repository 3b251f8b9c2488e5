//! Checks that a class does not use the same environment variable, resource or CDI kind as an
//! installed class. Otherwise a request would not say which of the two classes it means.

use std::collections::BTreeSet;

use device_class::DeviceClass;
use device_class::config::Config;
use device_class::discover::Inventory;
use device_class::load::{self, ClassSource};
use device_class::strict_toml::FileError;

use crate::command::finding::{Finding, Severity, describe_missing_class_files};

const SUBJECT: &str = "names";

/// Returns a finding for each installed class that uses the variable or a resource of `class`.
/// Ignores the installed class with the same name, because the checked file would replace it.
/// Ignores invalid class files, because `boathook check` reports them.
pub(super) fn find_name_conflicts(
    source: &ClassSource,
    class: &DeviceClass,
    inventory: &Inventory,
    config: &Config,
) -> Result<Vec<Finding>, FileError> {
    let installed_sources = load::read_each_source(&config.classes)?;
    let mut findings = Vec::new();
    if installed_sources.is_empty() {
        let text = format!(
            "{}, so that no name is compared",
            describe_missing_class_files(config)
        );
        findings.push(Finding::new(Severity::Note, SUBJECT, text));
    }
    let mut installed_names = installed_sources
        .iter()
        .flatten()
        .map(|source| &source.name);
    let is_installed = installed_names.any(|name| *name == class.name);
    if let Some(directory) = config.classes.last()
        && !is_installed
    {
        let path = directory.join(format!("{}.toml", class.name));
        let text = format!("to install the class, copy the file to {}", path.display());
        findings.push(Finding::new(Severity::Note, "install", text));
    }
    let resources = collect_resources(class, inventory);
    for installed_source in installed_sources.iter().flatten() {
        if installed_source.name == class.name {
            if !source.has_same_text(installed_source) {
                let text = format!(
                    "the installed class of this name is another one: {}",
                    installed_source.path.display()
                );
                findings.push(Finding::new(Severity::Note, SUBJECT, text));
            }
            continue;
        }
        let Ok(installed_class) = config.class(installed_source) else {
            continue;
        };
        findings.extend(compare_variables(class, &installed_class));
        findings.extend(compare_resources(class, &resources, &installed_class));
    }
    Ok(findings)
}

/// Returns the resource names of the class's devices on this host, and the resource names that the
/// class file contains.
fn collect_resources(class: &DeviceClass, inventory: &Inventory) -> BTreeSet<String> {
    let devices = inventory.devices.iter();
    let mut resources = class.spec.list_fixed_resources();
    resources.extend(devices.map(|device| device.resource.to_string()));
    resources
}

fn compare_variables(class: &DeviceClass, installed_class: &DeviceClass) -> Option<Finding> {
    let variable = &class.spec.request.env;
    if *variable != installed_class.spec.request.env {
        return None;
    }
    let text = format!(
        "the class {} uses the variable {variable} too, and a container that sets it is refused",
        installed_class.name
    );
    let prefix = class.name.as_str().replace(['-', '.'], "_");
    let fix = format!(
        "choose a name of your own, such as {}_VISIBLE_DEVICES, or disable {} with an empty file \
         /etc/boathook/classes.d/{}.toml",
        prefix.to_ascii_uppercase(),
        installed_class.name,
        installed_class.name
    );
    Some(Finding::new(Severity::Error, SUBJECT, text).with_fix(fix))
}

fn compare_resources(
    class: &DeviceClass,
    resources: &BTreeSet<String>,
    installed_class: &DeviceClass,
) -> Option<Finding> {
    let installed_resources = installed_class.spec.list_fixed_resources();
    let shared_resource = resources.intersection(&installed_resources).next()?;
    let text = format!(
        "the class {} has the resource and CDI kind {shared_resource} too",
        installed_class.name
    );
    if class.spec.is_enabled && installed_class.spec.is_enabled {
        let fix = "choose a name of your own: a domain that you own, and the sort of device";
        return Some(Finding::new(Severity::Error, SUBJECT, text).with_fix(fix));
    }
    let text = format!("{text}: only one of the two may be enabled");
    Some(Finding::new(Severity::Note, SUBJECT, text))
}
