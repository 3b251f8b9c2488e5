//! Implements `boathook class check`, which checks a class file and prints the devices that the
//! class finds on a host.

mod golden;
mod line_difference;
mod name_conflicts;
mod sources;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use device_class::config::Config;
use device_class::discover::{self, FoundClass, FoundEdits, Inventory, PathLookup};
use device_class::host::{GROUP_FILE_PATH, RecordedHost};
use device_class::load::ClassSource;
use device_class::name::CapabilityName;
use device_class::ownership::OwnershipError;
use device_class::{DeviceClass, HostView, ownership};
use hook::exit::ExitCode;
use hook::planner::{self, PlannerError};
use host_files::printable;
use injection_plan::request::RequestNames;
use serde_json::json;

use name_conflicts::find_name_conflicts;
use sources::{describe_missing_devices, examine_each_source, find_parts_without_device};

use crate::cli::CheckArguments;
use crate::command::devices::{self, ListedDevice};
use crate::command::finding::{Finding, FindingKind, Severity, print_table, to_exit_code};
use crate::command::output::Style;
use crate::command::{CommandError, print_json};

/// The host's directories that are mounted in the plugin's container
/// (deploy/base/daemon-set.yaml).
pub(crate) const PLUGIN_HOST_DIRS: [&str; 7] = [
    "/dev",
    "/sys",
    "/proc/driver",
    "/proc/devices",
    "/etc/boathook",
    "/opt/boathook",
    "/run/udev/data",
];

/// Checks a class file, and prints the devices that the class finds on this host or on a recorded
/// host.
pub(super) fn run(
    arguments: &CheckArguments,
    as_json: bool,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let class_file_path = arguments.file.as_path();
    let source = ClassSource::read(class_file_path, &config.classes)?;
    let class = config.class(&source)?;
    let recorded_host = arguments
        .recorded_host_path
        .as_deref()
        .map(read_recorded_host)
        .transpose()?;
    let real_host;
    let host: &dyn HostView = match &recorded_host {
        Some(recorded_host) => recorded_host,
        None => {
            real_host = planner::open_host(config)?;
            &real_host
        }
    };
    let (mut found_class, default_edits) = look_up_devices_and_edits(&class, host)?;
    let mut findings = Vec::new();
    if let Err(error) = ownership::check_trusted_file(class_file_path) {
        findings.push(create_ownership_finding(class_file_path, &error, config));
    }
    findings.extend(examine_class(&class, &found_class, &default_edits, host));
    if !found_class.inventory.devices.is_empty() {
        findings.extend(examine_each_source(&class, host)?);
    }
    if arguments.should_check_plugin_mounts {
        findings.extend(check_plugin_mounts(&class));
    }
    findings.extend(find_name_conflicts(
        &source,
        &class,
        &found_class.inventory,
        config,
    )?);
    let golden_path_and_host = arguments.golden_path.as_deref().zip(recorded_host.as_ref());
    let comparison = golden_path_and_host.map(|(golden_path, host)| {
        golden::compare_with_golden_file(golden_path, arguments.should_update_golden, &class, host)
    });
    let (mut differing_lines, mut lines_with_context) = (Vec::new(), Vec::new());
    if let Some(comparison) = comparison.transpose()? {
        findings.push(comparison.finding);
        differing_lines = comparison.differing_lines;
        lines_with_context = comparison.lines_with_context;
    }
    raise_severities(arguments, &found_class.inventory, &mut findings);
    // Each container with a device of the class gets `default_edits`, such as libraries. If one of
    // these edits is impossible, no such container can start. So all devices are listed as
    // unhealthy, as in `boathook list`.
    if let Some(reason) = default_edits.unusable_reasons().next() {
        found_class.inventory.mark_all_unhealthy(reason);
    }
    let request_names = RequestNames::new(&class, &found_class.inventory);
    let devices: Vec<ListedDevice> = found_class
        .inventory
        .devices
        .iter()
        .map(|device| ListedDevice::new(&class, device, &request_names))
        .collect();
    if as_json {
        print_json(&json!({
            "file": class_file_path,
            "class": class.name,
            "env": class.spec.request.env,
            "capabilities": class.spec.capabilities(),
            "devices": devices,
            "findings": findings,
            "difference": differing_lines,
        }))?;
    } else {
        print_result(
            class_file_path,
            &class,
            &devices,
            &found_class.edits,
            &findings,
        )?;
        let mut out = io::stdout().lock();
        for line in lines_with_context {
            writeln!(out, "{}", printable::escape_line(&line))?;
        }
    }
    Ok(to_exit_code(&findings))
}

/// Changes findings to errors if `--strict` or `--expect` demands it. Adds an error if the number
/// of devices differs from the number that `--expect` gives.
fn raise_severities(
    arguments: &CheckArguments,
    inventory: &Inventory,
    findings: &mut Vec<Finding>,
) {
    let expected_count = arguments.expected_device_count;
    for finding in &mut *findings {
        let is_about_devices = finding.kind != FindingKind::Other;
        let is_error = match finding.severity {
            Severity::Warning => {
                arguments.is_strict || expected_count.is_some() && is_about_devices
            }
            Severity::Note => {
                let says_no_device = finding.kind == FindingKind::NoDevice;
                arguments.is_strict && says_no_device && expected_count != Some(0)
            }
            Severity::Ok | Severity::Error => false,
        };
        if is_error {
            finding.severity = Severity::Error;
        }
    }
    let device_count = inventory.devices.len();
    if let Some(expected_count) =
        expected_count.filter(|expected_count| *expected_count != device_count)
    {
        let text = format!(
            "the class has {device_count} devices here, and --expect says {expected_count}"
        );
        findings.push(Finding::new(Severity::Error, "expect", text));
    }
}

/// Reports a class file that users other than root can change. This is an error if the file is in a
/// directory from which the hook reads class files. In any other directory, such as a developer's,
/// it is a note.
fn create_ownership_finding(
    class_file_path: &Path,
    error: &OwnershipError,
    config: &Config,
) -> Finding {
    let canonical_dir = class_file_path
        .parent()
        .and_then(|parent| parent.canonicalize().ok());
    let is_installed = config
        .classes
        .iter()
        .any(|class_dir| canonical_dir.is_some() && class_dir.canonicalize().ok() == canonical_dir);
    if is_installed {
        let text = format!("the hook refuses this file: {error}");
        return Finding::new(Severity::Error, "file", text);
    }
    let text = format!("the hook would refuse this file, so install it as root: {error}");
    Finding::new(Severity::Note, "file", text)
}

/// Looks up the devices of the class on the host. Also looks up the edits of a container, such as
/// nodes and libraries, for all capabilities of the class. The second result has the edits for the
/// default capabilities only.
fn look_up_devices_and_edits(
    class: &DeviceClass,
    host: &dyn HostView,
) -> Result<(FoundClass, FoundEdits), PlannerError> {
    let look_up_with_capabilities = |capabilities: BTreeSet<CapabilityName>| {
        discover::look_up_class(class, (&capabilities).into(), host)
    };
    let default_edits =
        look_up_with_capabilities(class.spec.request.find_default_capabilities())?.edits;
    Ok((
        look_up_with_capabilities(class.spec.capabilities())?,
        default_edits,
    ))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the user names the file, and waits"
)]
fn read_recorded_host(path: &Path) -> Result<RecordedHost, CommandError> {
    let to_error = |reason: String| {
        let path = path.into();
        CommandError::NotRecordedHost { path, reason }
    };
    let text = fs::read_to_string(path).map_err(|error| to_error(error.to_string()))?;
    RecordedHost::parse(&text).map_err(|error| to_error(error.to_string()))
}

fn examine_class(
    class: &DeviceClass,
    found_class: &FoundClass,
    default_edits: &FoundEdits,
    host: &dyn HostView,
) -> Vec<Finding> {
    let FoundClass { inventory, edits } = found_class;
    let to_warning = |text: &String| {
        Finding::new(Severity::Warning, "discover", text).with_kind(FindingKind::Devices)
    };
    let mut findings: Vec<Finding> = inventory.warnings.iter().map(to_warning).collect();
    if inventory.devices.is_empty() {
        let text = format!(
            "no device of this class on this host: {}",
            describe_missing_devices(class, inventory, host)
        );
        let create_note = |text: String| Finding::new(Severity::Note, "discover", text);
        findings.push(create_note(text).with_kind(FindingKind::NoDevice));
        let descriptions = &inventory.refused_candidates.descriptions;
        findings.extend(descriptions.iter().cloned().map(create_note));
        return findings;
    }
    findings.extend(find_parts_without_device(inventory));
    for device in &inventory.devices {
        if let discover::Health::Unhealthy { reason } = &device.health {
            let text = format!("{} is unhealthy: {reason}", device.id);
            let finding = Finding::new(Severity::Warning, "health", text);
            findings.push(finding.with_kind(FindingKind::Devices));
        }
    }
    if class.spec.device.numa.is_some()
        && inventory.devices.iter().all(|device| device.numa.is_none())
    {
        let text = "no device has a NUMA node: `numa` is the path of a directory in /sys, and this \
                    host may have one node only";
        findings.push(Finding::new(Severity::Note, "numa", text));
    }
    let to_finding = |reason| {
        if default_edits
            .unusable_reasons()
            .any(|default_reason| default_reason == reason)
        {
            Finding::new_error_with_hint("edits", reason)
        } else {
            let text = format!("with a capability that is not given by default: {reason}");
            Finding::new(Severity::Note, "edits", text)
        }
    };
    findings.extend(edits.unusable_reasons().map(to_finding));
    findings
}

/// Returns a finding for each path that the class reads but that is not mounted in the plugin's
/// container. The hook can read the path but the plugin cannot, so they could compute different ids
/// for the same device.
fn check_plugin_mounts(class: &DeviceClass) -> Vec<Finding> {
    let is_mounted = |path: &str| {
        let mut directories = PLUGIN_HOST_DIRS.iter();
        directories.any(|directory| Path::new(path).starts_with(directory))
    };
    let to_finding = |path: String| {
        // The Helm chart can mount this file, and does so for a class that names a group.
        if path == GROUP_FILE_PATH {
            let text = format!(
                "the plugin's container needs the host's {path}: the Helm chart mounts it if the \
                 class is in `classes.own`, otherwise set `hostGroups: true`; with kustomize add \
                 the component host-groups"
            );
            return Finding::new(Severity::Note, "plugin", text);
        }
        let text = format!("{path} is not mounted in the plugin's container");
        Finding::new(Severity::Error, "plugin", text).with_fix(format!(
            "read it from one of {}, or mount it in the DaemonSet at /host{path}",
            PLUGIN_HOST_DIRS.join(", ")
        ))
    };
    let paths = class.spec.list_read_paths().into_iter();
    paths
        .filter(|path| !is_mounted(path))
        .map(to_finding)
        .collect()
}

fn print_result(
    class_file_path: &Path,
    class: &DeviceClass,
    devices: &[ListedDevice],
    edits: &FoundEdits,
    findings: &[Finding],
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let style = Style::for_stdout();
    let worst_finding = findings.iter().max_by_key(|finding| finding.severity);
    let result_summary = match worst_finding
        .map(|finding| (finding.severity, finding.subject.as_str()))
    {
        Some((Severity::Error, "file")) => "refused",
        Some((Severity::Error, "edits")) => "this host lacks what the file names",
        Some((Severity::Error, "plugin")) => "not OK: the plugin cannot read what the class reads",
        Some((Severity::Error, _)) => "not OK",
        Some((Severity::Warning, _)) => "OK, with warnings",
        _ if devices.is_empty() => "OK, but it finds no device here",
        _ => "OK",
    };
    writeln!(
        out,
        "{}: class {}: {result_summary}",
        class_file_path.display(),
        class.name
    )?;
    writeln!(out, "request variable: {}", class.spec.request.env)?;
    let capabilities = class.spec.capabilities();
    if !capabilities.is_empty() {
        let names: Vec<&str> = capabilities.iter().map(|name| name.as_str()).collect();
        style.write_paragraph(&mut out, &format!("capabilities: {}", names.join(", ")))?;
    }
    if !devices.is_empty() {
        writeln!(out)?;
        devices::print_table(style, &mut out, devices)?;
        if let Some(count) = devices[0].replicas {
            writeln!(out, "each device is for {count} containers at once")?;
        }
        for line in list_existing_files(edits) {
            style.write_paragraph(&mut out, &line)?;
        }
    }
    if !findings.is_empty() {
        writeln!(out)?;
        print_table(&mut out, findings)?;
    }
    Ok(())
}

/// Returns one line for each kind of file that containers of the class get, such as libraries. Only
/// files that exist on the host are listed.
fn list_existing_files(edits: &FoundEdits) -> Vec<String> {
    fn find_existing_names<'a, T: 'a>(
        entries: impl Iterator<Item = (&'a PathLookup<T>, String)>,
    ) -> Vec<String> {
        let names = entries.filter_map(|(presence, name)| match presence {
            PathLookup::Found(_) => Some(name),
            PathLookup::OptionalAbsent | PathLookup::Unusable(_) => None,
        });
        names.collect()
    }
    let to_text = |path: &Path| path.display().to_string();
    let kinds = [
        (
            "control nodes",
            find_existing_names(
                edits
                    .nodes
                    .iter()
                    .map(|node| (&node.number, to_text(&node.container_path))),
            ),
        ),
        (
            "libraries",
            find_existing_names(
                edits
                    .libraries
                    .iter()
                    .map(|library| (&library.file, library.soname.clone())),
            ),
        ),
        (
            "files",
            find_existing_names(
                edits
                    .files
                    .iter()
                    .map(|file| (&file.file, to_text(&file.container_path))),
            ),
        ),
        (
            "directories",
            find_existing_names(
                edits
                    .directories
                    .iter()
                    .map(|directory| (&directory.directory, to_text(&directory.container_path))),
            ),
        ),
    ];
    kinds
        .iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(kind, names)| format!("{kind}: {}", names.join(", ")))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Returns the host directories that a manifest mounts into the plugin's container.
    fn mounted(manifest: &str) -> BTreeSet<&str> {
        let (_, plugin) = manifest.split_once("- name: plugin\n").unwrap();
        let (mounts, _) = plugin.split_once("\n      volumes:").unwrap();
        let paths = mounts.split("mountPath: /host").skip(1);
        let paths = paths.map(|rest| rest.split([',', '}']).next().unwrap());
        // An empty path is a mount of the whole host at /host, for the driver's programs.
        paths.filter(|path| !path.is_empty()).collect()
    }

    #[test]
    fn the_daemon_sets_mount_the_documented_directories() {
        let mut wanted = BTreeSet::from(PLUGIN_HOST_DIRS);
        // The plugin mounts this directory to write driver facts, not to read devices.
        wanted.insert("/run/boathook/facts");
        // The lock of its release is there.
        wanted.insert("/run/boathook/release");
        // The places in the values of the chart.
        let chart = include_str!("../../../../deploy/helm/templates/daemon-set.yaml")
            .replace("{{ .Values.configDir }}", "/etc/boathook")
            .replace("{{ .Values.installDir }}", "/opt/boathook")
            // The plugin does not have the mounts of the installer.
            .replace("mountPath: /host{{ $path }}", "")
            // This file is mounted only if a class names a group.
            .replace("mountPath: /host/etc/group", "");
        for manifest in [
            include_str!("../../../../deploy/base/daemon-set.yaml"),
            &chart,
        ] {
            assert_eq!(mounted(manifest), wanted);
        }
    }
}
