//! Compares the names of a class with those of the installed classes. Two classes must not use the
//! same variable, resource or CDI kind, because a request would not identify the class.

use std::collections::BTreeSet;

use device_class::DeviceClass;
use device_class::config::Config;
use device_class::discover::Inventory;
use device_class::load::{self, ClassSource};
use device_class::strict_toml::FileError;

use crate::command::finding::{Finding, Verdict, no_class_file};

const SUBJECT: &str = "names";

/// Returns a finding for each installed class that uses the variable or a resource of `class`. An
/// installed class with the same class name is not compared, because the checked file would replace
/// it. Invalid class files are ignored, because `boathook check` reports them.
pub(super) fn find_clashes(
    source: &ClassSource,
    class: &DeviceClass,
    inventory: &Inventory,
    config: &Config,
) -> Result<Vec<Finding>, FileError> {
    let installed_sources = load::read_each_source(&config.classes)?;
    let mut findings = Vec::new();
    if installed_sources.is_empty() {
        let text = format!("{}, so that no name is compared", no_class_file(config));
        findings.push(Finding::new(Verdict::Note, SUBJECT, text));
    }
    let resources = collect_resources(class, inventory);
    for other in installed_sources.iter().flatten() {
        if other.name == class.name {
            if !is_same_file(source, other) {
                let text = format!("an installed class has this name: {}", other.path.display());
                findings.push(Finding::new(Verdict::Note, SUBJECT, text));
            }
            continue;
        }
        let Ok(other) = config.class(other) else {
            continue;
        };
        findings.extend(compare_variables(class, &other));
        findings.extend(compare_resources(class, &resources, &other));
    }
    Ok(findings)
}

fn is_same_file(one: &ClassSource, other: &ClassSource) -> bool {
    let [one, other] = [one, other].map(|source| source.path.canonicalize().ok());
    one.is_some() && one == other
}

/// Returns the resources of the class's devices on this host, and those in its class file.
fn collect_resources(class: &DeviceClass, inventory: &Inventory) -> BTreeSet<String> {
    let devices = inventory.devices.iter();
    let mut resources = class.spec.fixed_resources();
    resources.extend(devices.map(|device| device.resource.to_string()));
    resources
}

fn compare_variables(class: &DeviceClass, other: &DeviceClass) -> Option<Finding> {
    let variable = &class.spec.request.env;
    if *variable != other.spec.request.env {
        return None;
    }
    let text = format!(
        "the class {} uses the variable {variable} too, and a container that sets it is refused",
        other.name
    );
    let prefix = class.name.as_str().replace(['-', '.'], "_");
    let fix = format!(
        "choose a name of your own, such as {}_VISIBLE_DEVICES, or disable {} with an empty file \
         /etc/boathook/classes.d/{}.toml",
        prefix.to_ascii_uppercase(),
        other.name,
        other.name
    );
    Some(Finding::new(Verdict::Error, SUBJECT, text).with_fix(fix))
}

fn compare_resources(
    class: &DeviceClass,
    resources: &BTreeSet<String>,
    other: &DeviceClass,
) -> Option<Finding> {
    let other_resources = other.spec.fixed_resources();
    let common_resource = resources.intersection(&other_resources).next()?;
    let text = format!(
        "the class {} has the resource and CDI kind {common_resource} too",
        other.name
    );
    if class.spec.is_enabled && other.spec.is_enabled {
        let fix = "choose a name of your own: a domain that you own, and the sort of device";
        return Some(Finding::new(Verdict::Error, SUBJECT, text).with_fix(fix));
    }
    let text = format!("{text}: only one of the two may be enabled");
    Some(Finding::new(Verdict::Note, SUBJECT, text))
}
