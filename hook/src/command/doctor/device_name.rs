//! Implements `boathook doctor --device NAME`, which says whether engines can resolve a CDI device
//! name, and to which device.

use std::fs;
use std::path::{Path, PathBuf};

use device_class::DeviceClass;
use device_class::config::Config;
use device_class::discover;
use device_class::load;
use device_class::similar;
use injection_plan::request::{DeviceList, Environment, Request, RequestSource};

use crate::command::cdi_names;
use crate::command::finding::{Finding, Verdict};
use crate::exit::ExitCode;
use crate::planner;

const SUBJECT: &str = "device";

/// Examines a CDI device name of the form `KIND=NAME`, such as `example.com/gpu=all`.
pub(super) fn examine_device_name(name: &str, config: &Config) -> Vec<Finding> {
    let Some((kind, device)) = name.split_once('=') else {
        let text = format!("{name} is no CDI name");
        let finding = Finding::new_fault(ExitCode::Request, SUBJECT, text);
        let fix = if name.starts_with('/') {
            format!("`boathook list {name}` says which device a path leads to")
        } else {
            "write KIND=NAME, such as example.com/gpu=all; `boathook cdi list` shows the \
             names of this host"
                .to_owned()
        };
        return vec![finding.with_fix(fix)];
    };
    let files = cdi_names::read_specifications(config);
    let matching_files: Vec<&(PathBuf, Vec<String>)> = files
        .iter()
        .filter(|(_, names)| names.iter().any(|device_name| device_name == name))
        .collect();
    // For engines, a specification in a later directory takes precedence over those in earlier
    // directories (CDI specification).
    let directory = matching_files.last().and_then(|(file, _)| file.parent());
    let effective_files = matching_files
        .iter()
        .filter(|(file, _)| file.parent() == directory);
    let effective_files: Vec<_> = effective_files.copied().collect();
    match effective_files.as_slice() {
        [] => vec![describe_unresolvable(name, kind, device, &files, config)],
        [(file, _)] => {
            let mut findings = examine_specification(name, file, device, config);
            findings.extend(find_missing_nodes(kind, config));
            findings
        }
        [(one, _), (other, _), ..] => {
            let text = format!(
                "{} and {} both have {name}, and engines refuse a name that two files have",
                one.display(),
                other.display()
            );
            let finding = Finding::new_fault(ExitCode::Request, SUBJECT, text);
            vec![finding.with_fix("remove one of the files, and the service that writes it")]
        }
    }
}

fn describe_unresolvable(
    name: &str,
    kind: &str,
    device: &str,
    files: &[(PathBuf, Vec<String>)],
    config: &Config,
) -> Finding {
    let unreadable_files = cdi_names::find_unreadable_specifications(config);
    if !unreadable_files.is_empty() {
        let unreadable_files: Vec<String> = unreadable_files
            .iter()
            .map(|file| file.display().to_string())
            .collect();
        let text = format!(
            "no specification has {name}; {} may have it, and is neither JSON nor YAML",
            unreadable_files.join(", ")
        );
        return Finding::new(Verdict::Warning, SUBJECT, text);
    }
    let text =
        format!("no specification of this host has {name}: engines say `unresolvable CDI devices`");
    let finding = Finding::new_fault(ExitCode::NoDevice, SUBJECT, text);
    let known_names: Vec<&str> = files
        .iter()
        .flat_map(|(_, names)| names.iter().map(String::as_str))
        .collect();
    let classes = find_classes(kind, config);
    if let Some(class) = classes
        .iter()
        .find(|class| has_device(class, device, config))
    {
        return finding.with_fix(format!(
            "write the names of class {0}: `boathook cdi generate {0}`",
            class.name
        ));
    }
    if let Some(class) = classes.first() {
        return finding.with_fix(format!(
            "`boathook list {}` shows the devices of this host; `boathook cdi generate {0}` writes \
             their names",
            class.name
        ));
    }
    if let Some(similar_name) = similar::find_most_similar(name, known_names.iter().copied()) {
        return finding.with_fix(format!("did you mean {similar_name}?"));
    }
    finding.with_fix(
        "no class has this kind: `boathook cdi list` shows the names of this host, and `boathook \
         list` the devices",
    )
}

/// Returns the classes whose devices have the CDI kind `kind`.
fn find_classes(kind: &str, config: &Config) -> Vec<DeviceClass> {
    let sources = load::read_each_source(&config.classes)
        .into_iter()
        .flatten();
    let classes = sources.filter_map(|source| config.class(&source.ok()?).ok());
    let Ok(host) = planner::open_host(config) else {
        return Vec::new();
    };
    classes
        .filter(|class| {
            let devices = discover::find_devices(class, &host).devices;
            class.spec.resource.to_string() == kind
                || devices
                    .iter()
                    .any(|device| device.resource.to_string() == kind)
        })
        .collect()
}

/// Returns a warning for each node that programs need and the host lacks. Engines start the
/// container nevertheless if the specification was written while the node was missing.
fn find_missing_nodes(kind: &str, config: &Config) -> Vec<Finding> {
    let Ok(host) = planner::open_host(config) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    for class in find_classes(kind, config) {
        let attributes = discover::find_devices(&class, &host).host_attributes;
        let capabilities = class.spec.request.capabilities_by_default();
        let missing_nodes =
            discover::describe_missing_nodes(&class, &capabilities, &attributes, &host);
        let subject = format!("class {}", class.name);
        findings.extend(missing_nodes.into_iter().map(|text| {
            let finding = Finding::new(Verdict::Warning, subject.clone(), text);
            finding.with_fix(format!(
                "load its driver, and write the specification again: `boathook cdi generate {}`",
                class.name
            ))
        }));
    }
    findings
}

fn has_device(class: &DeviceClass, device: &str, config: &Config) -> bool {
    let Ok(host) = planner::open_host(config) else {
        return false;
    };
    let Ok(devices) = DeviceList::parse(device) else {
        return false;
    };
    let source = RequestSource::Attach { devices };
    let request = Request::parse(class, &Environment::default(), source);
    let Ok(Some(request)) = request else {
        return false;
    };
    let found_class = discover::look_up_class(class, request.edit_selection(), &host);
    found_class.is_ok_and(|found_class| {
        let chosen_devices = request
            .selection
            .choose_devices(class, &found_class.inventory);
        chosen_devices.is_ok_and(|devices| !devices.is_empty())
    })
}

/// Examines whether the device nodes, mounts and hooks of the device in the specification `file`
/// exist. An engine refuses to start a container if one of them does not exist.
fn examine_specification(name: &str, file: &Path, device: &str, config: &Config) -> Vec<Finding> {
    let text = format!("{} has {name}", file.display());
    let mut findings = vec![Finding::new(Verdict::Ok, SUBJECT, text)];
    let specification = cdi_names::read_specification(file).unwrap_or_default();
    let devices = specification["devices"].as_array().into_iter().flatten();
    let own_devices = devices.filter(|item| item["name"] == device);
    let edits = own_devices
        .chain([&specification])
        .map(|owner| &owner["containerEdits"]);
    let paths = edits.flat_map(|edits| {
        let paths = |list: &str, keys: [&str; 2]| -> Vec<String> {
            let items = edits[list].as_array().into_iter().flatten();
            // An engine does not need the host's node if the specification has the type and the number
            // of the device.
            let items = items.filter(|item| item["type"].is_null() || item["major"].is_null());
            let item_paths = items.filter_map(|item| {
                let item_path = keys.iter().find_map(|key| item[*key].as_str());
                item_path.map(str::to_owned)
            });
            item_paths.collect()
        };
        let nodes = paths("deviceNodes", ["hostPath", "path"]);
        let mounts = paths("mounts", ["hostPath", "hostPath"]);
        let hooks = paths("hooks", ["path", "path"]);
        [nodes, mounts, hooks].concat()
    });
    let is_missing = |path: &String| {
        let path = config.host_root.join(path.trim_start_matches('/'));
        fs::symlink_metadata(path).is_err()
    };
    let mut missing_paths: Vec<String> = paths.filter(is_missing).collect();
    missing_paths.sort();
    missing_paths.dedup();
    if missing_paths.is_empty() {
        let text = "every node, file and hook of it is on this host";
        findings.push(Finding::new(Verdict::Ok, SUBJECT, text));
        return findings;
    }
    let text = format!(
        "{} is not on this host, and engines refuse a container with the name",
        missing_paths.join(", ")
    );
    let finding = Finding::new_fault(ExitCode::NoDevice, SUBJECT, text);
    findings.push(finding.with_fix(
        "write the specification again (`boathook cdi generate`, or the program that wrote it), \
         and load the driver of what is missing, as with `modprobe`",
    ));
    findings
}
