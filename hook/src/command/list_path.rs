//! Implements `boathook list PATH`, which finds the device of a device node or symbolic link of the
//! host. It prints the device's names, and the commands that start a container with the device.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use device_class::DeviceClass;
use device_class::config::Config;
use device_class::discover::{self, FoundClass};
use device_class::host::{HostView, RealHost};
use device_class::load;
use device_class::name::excerpt;
use injection_plan::request::{
    DeviceList, Environment, Item, Request, RequestNames, RequestSource,
};
use serde::Serialize;
use serde_json::json;

use super::devices::ListedDevice;
use super::launcher::{quote_for_shell, quote_for_yaml};
use super::output::Style;
use super::{CommandError, print_json};
use crate::exit::ExitCode;
use crate::planner;

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
    let (mut devices, mut code) = (Vec::new(), ExitCode::Success);
    for path in paths {
        let previous_count = devices.len();
        for source in load::read_each_source(&config.classes)?
            .into_iter()
            .flatten()
        {
            let Ok(class) = config.class(&source) else {
                continue;
            };
            devices.extend(find_device(path, &class, &host));
        }
        if devices.len() == previous_count {
            let entry = host.entry(path);
            let path = excerpt(&path.to_string_lossy());
            crate::log::error(&match entry {
                Ok(Some(_)) => format!(
                    "{path} is the node of no device of a class of this host: `boathook class new \
                     {path}` writes a class file for it"
                ),
                Ok(None) => format!(
                    "{path} does not exist on this host: connect the device, or load its driver"
                ),
                Err(error) => format!("cannot look up {path}: {error}"),
            });
            code = ExitCode::Request;
        }
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

fn find_device(path: &Path, class: &DeviceClass, host: &RealHost) -> Option<DeviceOfPath> {
    let text = path.to_str()?;
    let source = RequestSource::Attach {
        devices: DeviceList::from_item(Item::from_quoted_name(text)),
    };
    let request = Request::parse(class, &Environment::default(), source).ok()??;
    let FoundClass { inventory, .. } =
        discover::look_up_class(class, request.edit_selection(), host).ok()?;
    let devices = request.selection.choose_devices(class, &inventory).ok()?;
    let [device] = devices.as_slice() else {
        return None;
    };
    let names = RequestNames::new(class, &inventory);
    let listed_device = ListedDevice::new(class, device, &names);
    let names = listed_device.stable_names.clone();
    let is_node_path = device.nodes.iter().any(|node| node.host_path == path);
    let name = match is_node_path {
        false => text.to_owned(),
        true => names.first().unwrap_or(&listed_device.id).clone(),
    };
    Some(DeviceOfPath {
        path: path.to_owned(),
        is_enabled: class.spec.is_enabled,
        is_followed: class.spec.is_followed,
        request: listed_device.suggest_request_with_name(&name),
        names,
        listed_device,
    })
}

fn print_device(device: &DeviceOfPath, out: &mut impl Write) -> Result<(), CommandError> {
    let DeviceOfPath {
        path,
        listed_device,
        is_enabled,
        is_followed,
        names,
        request,
    } = device;
    let style = Style::for_stdout();
    let path = excerpt(&path.to_string_lossy());
    let (id, class, variable) = (
        &listed_device.id,
        &listed_device.class,
        &listed_device.variable,
    );
    style.write_paragraph(out, &format!("{path} is {id} of class {class}"))?;
    let own_names = [id.clone(), path];
    let request_names = listed_device.unique_aliases.iter().chain(&own_names);
    let all_names: Vec<&str> = request_names.map(String::as_str).collect();
    style.write_paragraph(
        out,
        &format!("its names in a request: {}", all_names.join(", ")),
    )?;
    if names.is_empty() {
        let text = "none of them stays when it is plugged in elsewhere";
        style.write_paragraph(out, text)?;
    }
    let (shell, yaml) = (quote_for_shell(request), quote_for_yaml(request));
    let value = request.replace('%', "%%");
    for (program, line) in [
        (
            "docker run",
            format!("--runtime boathook -e {variable}={shell}"),
        ),
        (
            "compose",
            format!("runtime: boathook, and in environment: {variable}: {yaml}"),
        ),
        ("podman run", format!("-e {variable}={shell}")),
        (
            "quadlet",
            format!(
                "Environment={}",
                quote_for_systemd(&format!("{variable}={value}"))
            ),
        ),
        (
            "pod",
            format!("resources: {{limits: {{{}: 1}}}}", listed_device.resource),
        ),
    ] {
        style.write_paragraph(out, &format!("  {program:<11} {line}"))?;
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
