//! Finds device nodes in config.json whose device number is no longer valid on the host. For
//! `--device`, the engine writes the device number when it creates the container, and a rootless
//! engine mounts the host's node. Later the device may be unplugged or get another number.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use device_class::DeviceClass;
use device_class::config::Config;
use device_class::device::{DeviceKind, DeviceNumber};
use device_class::discover;
use device_class::host::{Entry, HostView, RealHost};
use device_class::load;
use hook::exit::ExitCode;
use hook::log::format_error_chain;
use hook::planner::{self, Caller};
use injection_plan::plan::{Action, SpecNode};

use super::spec::{ContainerSpec, MountedNode};
use crate::command::finding::{Finding, Severity};
use crate::command::launcher::Launcher;

/// The maximum number of stale device nodes that are reported. A privileged container has all
/// device nodes of the host, so it can have many stale ones.
const MAX_REPORTED_NODES: usize = 8;

/// Returns a finding for each stale device node. Returns nothing if a CDI specification with the
/// hook gave devices to the container, because the hook replaces stale nodes of the specification.
/// Leaves out nodes over which the hook places the node of a requested device.
pub(super) fn examine_stale_nodes(
    spec: &ContainerSpec,
    known_classes: &[DeviceClass],
    launcher: Option<Launcher>,
    config: &Config,
) -> Vec<Finding> {
    let launcher = launcher.unwrap_or(Launcher::OciRuntime);
    let nodes = &spec.bundle.spec_devices.nodes;
    let has_nodes = !nodes.is_empty() || !spec.bundle.bind_mounted_nodes.is_empty();
    if !has_nodes || !spec.bundle.cdi_grants.is_empty() {
        return Vec::new();
    }
    let Ok(host) = planner::open_host(config) else {
        return Vec::new();
    };
    let created_nodes = nodes.iter().map(ExaminedNode::from_spec_node);
    let mounted_nodes = spec
        .mounted_nodes
        .iter()
        .map(ExaminedNode::from_mounted_node);
    let stale_nodes = created_nodes.chain(mounted_nodes).filter_map(|node| {
        let text = compare_with_host_node(&node, &host)?;
        Some((node.node.path.as_path(), node.host_path, text))
    });
    let absent_sources = spec
        .bundle
        .bind_mounted_nodes
        .iter()
        .filter_map(|bound_node| {
            let is_absent = !spec.is_running && matches!(host.entry(&bound_node.source), Ok(None));
            let text = format!(
                "config.json mounts {}, which this host does not have: the container cannot start",
                bound_node.source.display()
            );
            is_absent.then_some((&*bound_node.path, &*bound_node.source, (true, text)))
        });
    let stale_nodes: Vec<(&Path, &Path, (bool, String))> =
        stale_nodes.chain(absent_sources).collect();
    let covered_paths = if stale_nodes.is_empty() {
        BTreeSet::new()
    } else {
        find_planned_paths(spec, config)
    };
    let findings = stale_nodes
        .into_iter()
        .filter(|(path, ..)| !covered_paths.contains(*path))
        .take(MAX_REPORTED_NODES)
        .map(|(_, host_path, (is_gone, text))| {
            let finding = if is_gone {
                Finding::new_fault(ExitCode::NoDevice, "config.json", text)
            } else {
                Finding::new(Severity::Warning, "config.json", text)
            };
            finding.with_fix(describe_class_request(
                host_path,
                known_classes,
                launcher,
                &host,
            ))
        });
    findings.collect()
}

/// A device node of a container that is compared with the host.
struct ExaminedNode<'a> {
    node: &'a SpecNode,
    /// The path of the node on the host. For a node that the engine created, it is assumed to be
    /// the same as in the container.
    host_path: &'a Path,
    /// The place where the node has this number, in the words of messages, such as `config.json`.
    place: &'static str,
}

impl<'a> ExaminedNode<'a> {
    fn from_spec_node(node: &'a SpecNode) -> Self {
        ExaminedNode {
            node,
            host_path: &node.path,
            place: "config.json",
        }
    }

    fn from_mounted_node(mounted_node: &'a MountedNode) -> Self {
        ExaminedNode {
            node: &mounted_node.node,
            host_path: &mounted_node.source,
            place: "the container, which has the host's node of its start",
        }
    }
}

/// Returns the paths in the container at which the hook places the nodes of requested devices. The
/// result is empty if the container has no hook, or if the hook would refuse the container.
fn find_planned_paths(spec: &ContainerSpec, config: &Config) -> BTreeSet<PathBuf> {
    if spec.bundle.hooks.find_boathook_hooks().next().is_none() {
        return BTreeSet::new();
    }
    let plan = planner::plan_container_injection(&spec.bundle, &Caller::PlanInspector, config);
    let steps = plan.map(|plan| plan.steps).unwrap_or_default();
    let paths = steps.into_iter().filter_map(|step| match step.action {
        Action::Node { mount, .. } => Some(mount.path),
        Action::MakeNode { path, .. } => Some(path),
        _ => None,
    });
    paths.collect()
}

/// Compares a device node of a container with the host's node at the same path. Returns `None` if
/// there is no problem. Otherwise returns whether the difference is a fault, and its description.
fn compare_with_host_node(examined_node: &ExaminedNode, host: &RealHost) -> Option<(bool, String)> {
    let ExaminedNode {
        node,
        host_path,
        place,
    } = examined_node;
    let (path, number) = (node.path.display(), node.number);
    let host_number = match host.find_trusted_file(host_path) {
        Ok(Some(target)) => match target.entry {
            Entry::Device(host_number) if host_number == number => return None,
            Entry::Device(host_number) => Some(host_number),
            _ => None,
        },
        Ok(None) => None,
        Err(_) => return None,
    };
    match (has_device_with_number(number, host), host_number) {
        (true, Some(host_number)) => {
            let text = format!(
                "{path} is {number} in {place}, and {host_number} on the host: the container may have \
                 another device than you expect"
            );
            Some((false, text))
        }
        (false, host_number) => {
            let host_path = host_path.display();
            let change = host_number.map_or_else(
                || format!("and it has no {host_path}"),
                |host_number| format!("where {host_path} is {host_number} now"),
            );
            let text = format!(
                "{path} is {number} in {place}, a device that the host has no more, {change}: no \
                 program can open it"
            );
            Some((true, text))
        }
        // A path that does not exist on the host is not a fault: with `--device A:B`, the host's
        // node has another path in the container.
        (true, None) => None,
    }
}

/// Returns whether sysfs shows a device with the device number `number`
/// (Documentation/ABI/testing/sysfs-dev).
fn has_device_with_number(number: DeviceNumber, host: &RealHost) -> bool {
    let kind = match number.kind {
        DeviceKind::Character => "char",
        DeviceKind::Block => "block",
    };
    let path = format!("/sys/dev/{kind}/{}:{}", number.major, number.minor);
    !matches!(host.entry(Path::new(&path)), Ok(None))
}

/// Describes how a user of Docker can request the device of the node `path` without the option
/// `--device`. The host does not have this node now.
pub(super) fn suggest_class_request(path: &Path, config: &Config) -> String {
    let sources = load::read_each_source(&config.classes)
        .into_iter()
        .flatten();
    let classes = sources.filter_map(|source| config.class(&source.ok()?).ok());
    let known_classes: Vec<DeviceClass> = classes.collect();
    match planner::open_host(config) {
        Ok(host) => describe_class_request(path, &known_classes, Launcher::Docker, &host),
        Err(error) => format_error_chain(&error),
    }
}

/// Describes how a user can request the device by a class instead of the option `--device`. A class
/// is suggested if one of its devices has a node with a similar path. Otherwise, a class is
/// suggested if its path pattern is the only one that matches the node's name.
fn describe_class_request(
    path: &Path,
    known_classes: &[DeviceClass],
    launcher: Launcher,
    host: &RealHost,
) -> String {
    let (option, requirement) = launcher.describe_device_option();
    let trim_number = |path: &Path| {
        let text = path.to_string_lossy().into_owned();
        text.trim_end_matches(|c: char| c.is_ascii_digit())
            .to_owned()
    };
    // `path` may be a link of udev, whose name is similar to no node. So the link is resolved.
    let node_path = host.canonicalize(path);
    let node_stem = trim_number(node_path.as_deref().unwrap_or(path));
    let has_similar_node = |class: &&DeviceClass| {
        let devices = discover::find_devices(class, host).devices;
        let mut nodes = devices.iter().flat_map(|device| &device.nodes);
        nodes.any(|node| trim_number(&node.host_path) == node_stem)
    };
    // If the missing device was the only one of its class, no other device has a similar node. So
    // the node is also compared with the path patterns of the classes.
    let node_name = Path::new(&node_stem).file_name().unwrap_or_default();
    let matches_node_name = |class: &&DeviceClass| {
        let sources = class.spec.discover.iter();
        let mut patterns = sources.filter_map(|source| source.path.as_ref());
        patterns.any(|pattern| {
            let pattern = pattern.to_string();
            let name_pattern = pattern.rsplit('/').next().unwrap_or_default();
            // The pattern must have one attribute, at its end, such as `video{number}`.
            let parts = name_pattern
                .split_once('{')
                .filter(|(_, attribute)| attribute.ends_with('}') && !attribute.contains('{'));
            parts.is_some_and(|(start, _)| !start.is_empty() && node_name == start)
        })
    };
    let mut matching_classes = known_classes.iter().filter(matches_node_name);
    let only_matching_class = matching_classes
        .next()
        .filter(|_| matching_classes.next().is_none());
    let class = known_classes.iter().find(has_similar_node);
    match class.or(only_matching_class) {
        Some(class) if class.spec.is_followed => format!(
            "in place of {option}, set {}=NAME? with a name that stays, such as its serial number \
             (`boathook list {}`), and {requirement}: the device is looked up when the \
             container starts, and `boathook follow` gives it again when it comes back",
            class.spec.request.env, class.name
        ),
        Some(class) => format!(
            "in place of {option}, set {}=NAME with a name that stays (`boathook list {}`), and \
             {requirement}: the device is looked up when the container starts",
            class.spec.request.env, class.name
        ),
        None => "create the container again, or request the device by a class (`boathook list \
                 --all`, `boathook class new`): it is looked up when the container starts"
            .to_owned(),
    }
}
