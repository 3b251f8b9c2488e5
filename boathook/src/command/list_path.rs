//! Implements `boathook list PATH`, which finds the device of a device node or symbolic link of the
//! host. It prints the device's names, and the commands that start a container with the device.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use device_class::DeviceClass;
use device_class::config::Config;
use device_class::discover::{self, FoundClass};
use device_class::host::{Entry, HostView, RealHost};
use device_class::load;
use device_class::name::excerpt;
use hook::exit::ExitCode;
use hook::planner;
use host_files::printable;
use injection_plan::request::{
    DeviceList, DeviceListItem, Environment, Request, RequestNames, RequestSource,
};
use serde::Serialize;
use serde_json::json;

use super::devices::ListedDevice;
use super::launcher::{quote_for_compose, quote_for_shell};
use super::output::Style;
use super::unlisted_path::describe_unlisted_path;
use super::{CommandError, list_directory, print_json};

/// The device to which a path leads. The path is a device node of the device, or a link to one.
#[derive(Serialize)]
struct DeviceOfPath {
    path: PathBuf,
    #[serde(flatten)]
    listed_device: ListedDevice,
    #[serde(rename = "enabled")]
    is_enabled: bool,
    #[serde(rename = "follow")]
    is_followed: bool,
    /// True if this entry stands for all devices of a resource together (`combine` in the class
    /// file), for example for monitoring.
    #[serde(skip)]
    is_combined: bool,
    /// The names that belong to no other device and that stay the same when this device is
    /// unplugged and plugged in again.
    names: Vec<String>,
    /// The recommended value of the environment variable: the link that the user gave, or a name
    /// that does not depend on the device's port.
    request: String,
}

/// Prints the device to which each path leads. If a path leads to no device of a class, prints an
/// error message and returns [`ExitCode::Request`].
pub(super) fn run(
    paths: &[PathBuf],
    as_json: bool,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let host = planner::open_host(config)?;
    let sources = load::read_each_source(&config.classes)?.into_iter();
    let classes = sources
        .flatten()
        .filter_map(|source| config.class(&source).ok());
    let classes: Vec<DeviceClass> = classes.collect();
    let (mut devices, mut code) = (Vec::new(), ExitCode::Success);
    for path in paths {
        if matches!(host.entry(path), Ok(Some(Entry::Directory))) {
            let devices_below = find_devices_below(path, &classes, &host);
            if devices_below.is_empty() {
                code = ExitCode::Request;
            }
            devices.extend(devices_below);
            continue;
        }
        let previous_count = devices.len();
        devices.extend(find_devices_of_path(path, &classes, &host));
        if devices.len() == previous_count {
            hook::log::error(&describe_unlisted_path(path, &classes, &host));
            code = ExitCode::Request;
        }
        // A class that is offered to pods comes first. A class whose device stands for all devices
        // of a resource, as for monitoring, comes last.
        devices[previous_count..].sort_by_key(|device| (device.is_combined, !device.is_enabled));
    }
    if as_json {
        print_json(&json!({ "devices": devices }))?;
        return Ok(code);
    }
    let mut out = io::stdout().lock();
    for (device, index) in devices.iter().zip(0..) {
        if index > 0 {
            writeln!(out)?;
        }
        print_device(device, &mut out)?;
    }
    Ok(code)
}

/// Returns the devices to which a path leads. There may be several, because several classes may
/// describe the same hardware.
fn find_devices_of_path(
    path: &Path,
    classes: &[DeviceClass],
    host: &RealHost,
) -> Vec<DeviceOfPath> {
    let devices = classes
        .iter()
        .filter_map(|class| find_device(path, class, host));
    devices.collect()
}

/// Returns the devices of all classes with a node below a directory, and logs the nodes that belong
/// to no class. If the directory has only links, such as /dev/serial/by-id, returns the devices to
/// which the links lead.
fn find_devices_below(
    directory: &Path,
    classes: &[DeviceClass],
    host: &RealHost,
) -> Vec<DeviceOfPath> {
    let found_classes = classes.iter().filter_map(|class| {
        let found_class = discover::look_up_class(class, (&BTreeSet::new()).into(), host);
        Some((class.clone(), found_class.ok()?))
    });
    let found_classes: Vec<(DeviceClass, FoundClass)> = found_classes.collect();
    let devices = found_classes.iter().flat_map(|(class, found_class)| {
        let inventory = &found_class.inventory;
        let request_names = RequestNames::new(class, inventory);
        let devices = list_directory::find_devices_below(directory, inventory);
        devices.map(move |(device, node)| {
            let listed_device = ListedDevice::new(class, device, &request_names);
            let name = choose_name(class, &listed_device);
            DeviceOfPath::new(node, class, listed_device, &name)
        })
    });
    let mut devices: Vec<DeviceOfPath> = devices.collect();
    let unclaimed_nodes = list_directory::describe_unclaimed_nodes(directory, &found_classes, host);
    if devices.is_empty() && unclaimed_nodes.is_none() {
        for link in list_directory::list_links(directory, host) {
            devices.extend(find_devices_of_path(&link, classes, host));
        }
    }
    let directory = excerpt(&directory.to_string_lossy());
    match unclaimed_nodes {
        Some(text) if devices.is_empty() => hook::log::error(&text),
        Some(text) => hook::log::warning(&text),
        None if devices.is_empty() => {
            hook::log::error(&format!(
                "the directory {directory} has no nodes of devices"
            ));
        }
        None => {}
    }
    devices
}

fn find_device(path: &Path, class: &DeviceClass, host: &RealHost) -> Option<DeviceOfPath> {
    let text = path.to_str()?;
    let source = RequestSource::Attach {
        devices: DeviceList::from_item(DeviceListItem::from_quoted_name(text)),
    };
    let request = Request::parse(class, &Environment::default(), source).ok()??;
    let FoundClass { inventory, .. } =
        discover::look_up_class(class, request.edit_selection(), host).ok()?;
    let devices = request.selection.choose_devices(class, &inventory).ok()?;
    let [device] = devices.as_slice() else {
        return None;
    };
    let request_names = RequestNames::new(class, &inventory);
    let listed_device = ListedDevice::new(class, device, &request_names);
    let is_node = device.nodes.iter().any(|node| node.host_path == path);
    let link_name = path.file_name().and_then(|name| name.to_str());
    let is_shared = link_name.is_some_and(|name| request_names.may_lose_udev_name(device, name));
    if is_shared {
        hook::log::warning(&format!(
            "{} may lead to another device tomorrow: udev makes it from the model and the serial \
             number, and a device of this host without such a link has the same; request the device \
             by the place where it is plugged in",
            excerpt(text)
        ));
    }
    let name = if is_node || is_shared {
        choose_name(class, &listed_device)
    } else {
        text.to_owned()
    };
    let mut device_of_path = DeviceOfPath::new(path, class, listed_device, &name);
    // A link of udev stays the same when the device is plugged in elsewhere, unless the link is
    // named after the port, as in /dev/serial/by-path.
    let is_link = host.canonicalize(path).is_ok_and(|target| target != path);
    if is_link && !is_shared && !text.contains("/by-path/") {
        device_of_path.names.push(text.to_owned());
    }
    Some(device_of_path)
}

/// Returns the name that a request for `device` should contain: a name that stays the same when the
/// device is plugged in elsewhere or, if there is none, the id.
fn choose_name(class: &DeviceClass, device: &ListedDevice) -> String {
    // If the device stands for all devices of a resource, its other names belong to single devices.
    // So only the id is used.
    let stable_name = device.stable_names.first();
    let stable_name = stable_name.filter(|_| !combines_devices(class));
    stable_name.unwrap_or(&device.id).clone()
}

fn combines_devices(class: &DeviceClass) -> bool {
    let sharing = class.spec.sharing.as_ref();
    sharing.is_some_and(|sharing| sharing.combines_resource)
}

impl DeviceOfPath {
    /// Creates the entry for a device to which `path` leads. A request for the device should
    /// contain `name`.
    fn new(path: &Path, class: &DeviceClass, listed_device: ListedDevice, name: &str) -> Self {
        DeviceOfPath {
            path: path.to_owned(),
            is_enabled: class.spec.is_enabled,
            is_followed: class.spec.is_followed,
            is_combined: combines_devices(class),
            request: listed_device.suggest_request_with_name(name),
            names: listed_device.stable_names.clone(),
            listed_device,
        }
    }
}

fn print_device(device: &DeviceOfPath, out: &mut impl Write) -> Result<(), CommandError> {
    let DeviceOfPath {
        path,
        listed_device,
        is_enabled,
        is_followed,
        is_combined: _,
        names,
        request,
    } = device;
    let style = Style::for_stdout();
    let path_name = path.to_string_lossy().into_owned();
    let path = excerpt(&path_name);
    let (id, class, variable) = (
        &listed_device.id,
        &listed_device.class,
        &listed_device.variable,
    );
    style.write_paragraph(out, &format!("{path} is {id} of class {class}"))?;
    let own_names = [id.clone(), path_name];
    let request_names = listed_device.unique_aliases.iter().chain(&own_names);
    let all_names: Vec<&str> = request_names.map(String::as_str).collect();
    style.write_paragraph(
        out,
        &format!("its names in a request: {}", all_names.join(", ")),
    )?;
    if names.is_empty() && *is_followed {
        let text = "none of them stays when it is plugged in elsewhere";
        style.write_paragraph(out, text)?;
    }
    let (shell_request, yaml_request) = (quote_for_shell(request), quote_for_compose(request));
    let unit_value = request.replace('%', "%%");
    for (program, line) in [
        (
            "docker run",
            format!("--runtime boathook -e {variable}={shell_request}"),
        ),
        (
            "compose",
            format!("runtime: boathook\nenvironment:\n  {variable}: {yaml_request}"),
        ),
        ("podman run", format!("-e {variable}={shell_request}")),
        (
            "quadlet",
            format!(
                "Environment={}",
                quote_for_systemd(&format!("{variable}={unit_value}"))
            ),
        ),
        (
            "pod",
            format!("resources: {{limits: {{{}: 1}}}}", listed_device.resource),
        ),
    ] {
        // These lines are not wrapped, so that a user can copy them. Lines of a file keep their
        // indentation.
        for (index, line) in line.split('\n').enumerate() {
            let program = if index == 0 { program } else { "" };
            writeln!(out, "  {program:<11} {}", printable::escape_line(line))?;
        }
    }
    if !is_enabled {
        let text = format!("pods get it with `enabled = true` in [class.{class}] of config.toml");
        style.write_paragraph(out, &text)?;
    }
    if *is_followed {
        let text = "`?`: the container starts without it, too, and `boathook follow` gives it when it \
                    comes";
        style.write_paragraph(out, text)?;
    }
    Ok(())
}

/// Quotes a text for a systemd unit file (systemd.syntax(7), "Quoting").
fn quote_for_systemd(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
