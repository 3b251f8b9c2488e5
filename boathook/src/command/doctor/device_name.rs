//! Implements `boathook doctor --device NAME`, which says whether engines can resolve a CDI device
//! name, and to which device the name leads.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use device_class::DeviceClass;
use device_class::collect_by_insertion;
use device_class::config::Config;
use device_class::discover;
use device_class::load;
use device_class::similar;
use hook::exit::ExitCode;
use hook::planner;
use injection_plan::request::{DeviceList, Environment, Request, RequestSource};

use crate::command::cdi_names;
use crate::command::finding::{Finding, Severity};

const SUBJECT: &str = "device";

/// Examines a CDI device name of the form `KIND=NAME`, such as `example.com/gpu=all`.
pub(super) fn examine_device_name(cdi_name: &str, config: &Config) -> Vec<Finding> {
    let Some((kind, device)) = cdi_name.split_once('=') else {
        let text = format!("{cdi_name} is no CDI name");
        let finding = Finding::new_fault(ExitCode::Request, SUBJECT, text);
        let fix = if cdi_name.starts_with('/') {
            format!("`boathook list {cdi_name}` says which device a path leads to")
        } else {
            "write KIND=NAME, such as example.com/gpu=all; `boathook cdi list` shows the \
             names of this host"
                .to_owned()
        };
        return vec![finding.with_fix(fix)];
    };
    let specifications = cdi_names::read_specifications(config);
    let matching_specifications: Vec<&(PathBuf, Vec<String>)> = specifications
        .iter()
        .filter(|(_, names)| names.iter().any(|device_name| device_name == cdi_name))
        .collect();
    // If several directories have a specification with this device name, engines use only the last
    // directory (CDI specification).
    let directory = matching_specifications
        .last()
        .and_then(|(specification_path, _)| specification_path.parent());
    let effective_specifications = matching_specifications
        .iter()
        .filter(|(specification_path, _)| specification_path.parent() == directory);
    let effective_specifications: Vec<_> = effective_specifications.copied().collect();
    match effective_specifications.as_slice() {
        [] => vec![explain_unresolvable_name(
            cdi_name,
            kind,
            device,
            &specifications,
            config,
        )],
        [(specification_path, _)] => {
            let mut findings = examine_specification(cdi_name, specification_path, device, config);
            findings.extend(report_missing_nodes(kind, config));
            findings
        }
        [(path, _), (other_path, _), ..] => {
            let text = format!(
                "{} and {} both have {cdi_name}, and engines refuse a name that two files have",
                path.display(),
                other_path.display()
            );
            let finding = Finding::new_fault(ExitCode::Request, SUBJECT, text);
            vec![finding.with_fix("remove one of the files, and the service that writes it")]
        }
    }
}

fn explain_unresolvable_name(
    cdi_name: &str,
    kind: &str,
    device: &str,
    specifications: &[(PathBuf, Vec<String>)],
    config: &Config,
) -> Finding {
    let unparsable_paths = cdi_names::find_unparsable_specifications(config);
    if !unparsable_paths.is_empty() {
        let unparsable_paths: Vec<String> = unparsable_paths
            .iter()
            .map(|file| file.display().to_string())
            .collect();
        let text = format!(
            "no specification has {cdi_name}; {} may have it, and is neither JSON nor YAML",
            unparsable_paths.join(", ")
        );
        return Finding::new(Severity::Warning, SUBJECT, text);
    }
    let text = format!(
        "no specification of this host has {cdi_name}: engines say `unresolvable CDI devices`"
    );
    let finding = Finding::new_fault(ExitCode::NoDevice, SUBJECT, text);
    let known_names: Vec<&str> = specifications
        .iter()
        .flat_map(|(_, names)| names.iter().map(String::as_str))
        .collect();
    let classes = find_classes_by_kind(kind, config);
    if let Some(class) = classes
        .iter()
        .find(|class| has_device(class, device, config))
    {
        return finding.with_fix(format!(
            "write the names of class {0}: `boathook cdi generate {0}`",
            class.name
        ));
    }
    let similar_name = similar::find_most_similar(cdi_name, known_names.iter().copied());
    let similar_name = similar_name.map(|name| format!("did you mean {name}?"));
    let names_of_kind = describe_names_of_kind(kind, &known_names);
    if let Some(class) = classes.first() {
        let list_hint = format!(
            "this host has no such device; `boathook list {}` shows its devices",
            class.name
        );
        let fixes = [similar_name, Some(list_hint), names_of_kind];
        let fixes: Vec<String> = fixes.into_iter().flatten().collect();
        return finding.with_fix(fixes.join("; "));
    }
    if similar_name.is_some() || names_of_kind.is_some() {
        let fixes: Vec<String> = similar_name.into_iter().chain(names_of_kind).collect();
        return finding.with_fix(fixes.join("; "));
    }
    finding.with_fix(
        "no class has this kind: `boathook cdi list` shows the names of this host, and `boathook \
         list` the devices",
    )
}

/// Describes the names of a CDI kind that engines can resolve, such as
/// `after example.com/npu= there may be 0, 1`. Returns `None` if there are none.
fn describe_names_of_kind(kind: &str, known_names: &[&str]) -> Option<String> {
    const MAX_SHOWN_NAMES: usize = 8;
    let known_names = known_names.iter().filter_map(|name| name.split_once('='));
    let names: BTreeSet<&str> = collect_by_insertion(
        known_names
            .filter(|(known_kind, _)| *known_kind == kind)
            .map(|(_, device)| device),
    );
    let shown_names: Vec<&str> = names.iter().take(MAX_SHOWN_NAMES).copied().collect();
    let more_note = match names.len() - shown_names.len() {
        0 => String::new(),
        more_count => format!(" and {more_count} more"),
    };
    let shown_names = shown_names.join(", ");
    (!names.is_empty()).then(|| format!("after {kind}= there may be {shown_names}{more_note}"))
}

fn find_classes_by_kind(kind: &str, config: &Config) -> Vec<DeviceClass> {
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

/// Returns a warning for each device node that programs need but the host does not have. If a
/// specification was written while the node was missing, engines start the container without the
/// node.
fn report_missing_nodes(kind: &str, config: &Config) -> Vec<Finding> {
    let Ok(host) = planner::open_host(config) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    for class in find_classes_by_kind(kind, config) {
        let attributes = discover::find_devices(&class, &host).host_attributes;
        let capabilities = class.spec.request.find_default_capabilities();
        let missing_nodes =
            discover::describe_missing_nodes(&class, &capabilities, &attributes, &host);
        let subject = format!("class {}", class.name);
        findings.extend(missing_nodes.into_iter().map(|text| {
            let finding = Finding::new(Severity::Warning, subject.clone(), text);
            finding.with_fix(format!(
                "load its driver, and write the specification again: `boathook cdi generate {}`",
                class.name
            ))
        }));
    }
    findings
}

fn has_device(class: &DeviceClass, device_name: &str, config: &Config) -> bool {
    let Ok(host) = planner::open_host(config) else {
        return false;
    };
    let Ok(devices) = DeviceList::parse(device_name) else {
        return false;
    };
    let source = RequestSource::Attach { devices };
    let request = Request::parse(class, &Environment::default(), source);
    let Ok(Some(request)) = request else {
        return false;
    };
    let found_class = discover::look_up_class(class, request.edit_selection(), &host);
    found_class.is_ok_and(|found_class| {
        let selected_devices = request
            .selection
            .choose_devices(class, &found_class.inventory);
        selected_devices.is_ok_and(|devices| !devices.is_empty())
    })
}

/// Examines whether the host has the device nodes, mount sources and hook programs that the
/// specification lists for the device. If one is missing, engines refuse to start the container.
fn examine_specification(
    cdi_name: &str,
    specification_path: &Path,
    device_name: &str,
    config: &Config,
) -> Vec<Finding> {
    let text = format!("{} has {cdi_name}", specification_path.display());
    let mut findings = vec![Finding::new(Severity::Ok, SUBJECT, text)];
    let specification = cdi_names::read_specification(specification_path).unwrap_or_default();
    let devices = specification["devices"].as_array().into_iter().flatten();
    let matching_devices = devices.filter(|item| item["name"] == device_name);
    let edits = matching_devices
        .chain([&specification])
        .map(|owner| &owner["containerEdits"]);
    let paths = edits.flat_map(|edits| {
        let list_paths = |list: &str, keys: [&str; 2]| -> Vec<String> {
            let items = edits[list].as_array().into_iter().flatten();
            // If an entry contains the type and the number of a device, the engine creates the node
            // itself. It does not need the host's node, so the entry is skipped.
            let items = items.filter(|item| item["type"].is_null() || item["major"].is_null());
            let item_paths = items.filter_map(|item| {
                let item_path = keys.iter().find_map(|key| item[*key].as_str());
                item_path.map(str::to_owned)
            });
            item_paths.collect()
        };
        let nodes = list_paths("deviceNodes", ["hostPath", "path"]);
        let mounts = list_paths("mounts", ["hostPath", "hostPath"]);
        let hooks = list_paths("hooks", ["path", "path"]);
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
        findings.push(Finding::new(Severity::Ok, SUBJECT, text));
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
