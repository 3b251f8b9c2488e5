//! Implements `boathook list`, which prints the devices of this host and how containers request
//! them.

mod scan;
mod watch;

use device_class::collect_by_insertion;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::mem;

use device_class::config::Config;
use device_class::name::ClassName;
use hook::exit::ExitCode;

use super::devices::{self, ListedDevice, RequestColumn};
use super::holders::{Holders, UnfulfilledRequest};
use super::launcher::{DeliveryMethods, Launcher};
use super::output::Style;
use super::{CommandError, print_json};

use scan::{ClassSelection, Scan};
pub(super) use watch::watch;

pub(super) struct ListOptions<'a> {
    pub(super) class_names: &'a [ClassName],
    /// True if the output contains all classes, including those that are left out by default
    /// (`--all`).
    pub(super) include_all_classes: bool,
    /// True if the output contains only devices that a container holds (`--used`).
    pub(super) only_held_devices: bool,
    /// True if the output also names the classes that have no devices (`--verbose`).
    pub(super) include_empty_classes: bool,
    pub(super) as_json: bool,
}

impl ListOptions<'_> {
    fn class_selection(&self) -> ClassSelection<'_> {
        ClassSelection {
            class_names: self.class_names,
            include_all_classes: self.include_all_classes || self.only_held_devices,
        }
    }
}

/// Prints the devices of the classes that the user named. If the user named none, prints the
/// enabled classes on a cluster node. On any other host, prints all classes except those of virtual
/// devices that are not enabled. Logs an error for an invalid class file, and continues with the
/// other classes.
pub(super) fn run(
    options: &ListOptions<'_>,
    holders: Option<&Holders>,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let mut scan = Scan::scan_host(&options.class_selection(), holders, config)?;
    scan.log_problems();
    let unfulfilled_requests: Vec<UnfulfilledRequest> = match holders {
        Some(holders) if options.only_held_devices => holders
            .list_unfulfilled_requests(&scan.classes)
            .map(|container| container.clone().with_suggestion(&scan.devices))
            .collect(),
        _ => Vec::new(),
    };
    if options.only_held_devices {
        let is_held = |device: &ListedDevice| device.holders.iter().flatten().next().is_some();
        scan.devices.retain(is_held);
    }
    if options.as_json {
        let mut json_list = scan.to_json();
        if options.only_held_devices {
            json_list["waiting"] = serde_json::to_value(&unfulfilled_requests)?;
        }
        print_json(&json_list)?;
        return Ok(scan.exit_code());
    }
    let mut out = io::stdout().lock();
    let style = Style::for_stdout();
    if options.only_held_devices {
        if scan.devices.is_empty() {
            style.write_paragraph(&mut out, "no container that runs has a device")?
        } else {
            print_devices(&scan, style, &mut out)?
        }
        for container in &unfulfilled_requests {
            style.write_paragraph(&mut out, &container.describe())?;
        }
        if !scan.devices.is_empty() {
            print_requests(&scan, config, style, &mut out)?;
        }
    } else {
        print_scan(&scan, options, config, style, &mut out)?;
    }
    Ok(scan.exit_code())
}

impl Scan {
    fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "classes": self.classes,
            "without_devices": self.classes_without_devices,
            "not_enabled": self.disabled_classes,
            "left_out": self.class_file_errors,
            "devices": self.devices,
        })
    }
}

/// Prints the devices, how containers request them, and the reasons why devices are missing.
fn print_scan(
    scan: &Scan,
    options: &ListOptions<'_>,
    config: &Config,
    style: Style,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    let has_named_classes = !options.class_names.is_empty();
    if scan.devices.is_empty() {
        let is_complete = scan.has_class_file && scan.class_file_errors.is_empty();
        if !has_named_classes && is_complete {
            let text = "no device of any class on this host; `boathook list -v` names the classes, \
                        and `boathook class new /dev/NODE` writes one for your own device";
            style.write_paragraph(out, text)?;
        }
    } else {
        print_devices(scan, style, out)?;
        print_requests(scan, config, style, out)?;
    }
    // Aliases are printed only if the user named classes. A list of all classes would contain too
    // many.
    if has_named_classes {
        print_aliases(style, out, &scan.devices)?;
    }
    let mut unhealthy_devices = scan
        .devices
        .iter()
        .filter(|device| !device.is_healthy)
        .peekable();
    if unhealthy_devices.peek().is_some() {
        writeln!(out)?;
    }
    for ListedDevice { id, reason, .. } in unhealthy_devices {
        let reason = reason.as_deref().unwrap_or_default();
        style.write_paragraph(out, &format!("{id} is unhealthy: {reason}"))?;
    }
    // If Boathook runs in a container, the container may lack some of the machine's devices on
    // purpose. So such devices are not listed by default.
    if has_named_classes || options.include_empty_classes {
        for text in &scan.inaccessible_devices {
            style.write_paragraph(out, text)?;
        }
    }
    for text in &scan.passthrough_hardware {
        style.write_paragraph(out, text)?;
    }
    // Most hosts have devices of only a few classes, so the other classes are not listed by
    // default.
    if (has_named_classes || options.include_empty_classes)
        && !scan.classes_without_devices.is_empty()
    {
        writeln!(out)?;
        let text = format!("no devices of {}", scan.classes_without_devices.join(", "));
        style.write_paragraph(out, &text)?;
    }
    if !scan.hidden_classes.is_empty() {
        let text = format!(
            "config.toml hides all devices of {}",
            scan.hidden_classes.join(", ")
        );
        style.write_paragraph(out, &text)?;
    }
    if !scan.disabled_classes.is_empty() && (scan.is_cluster_node || options.include_empty_classes)
    {
        let explanation = if scan.is_cluster_node {
            "not offered to pods unless config.toml enables the class"
        } else {
            "virtual devices"
        };
        let class_names = scan.disabled_classes.join(", ");
        style.write_paragraph(
            out,
            &format!("{explanation}, and shown by name or with --all: {class_names}"),
        )?;
    }
    Ok(())
}

fn print_devices(scan: &Scan, style: Style, out: &mut impl Write) -> io::Result<()> {
    let column = if scan.is_cluster_node {
        RequestColumn::Resource
    } else {
        RequestColumn::Variable
    };
    devices::print_table_with_column(column, style, out, &scan.devices)
}

/// Prints how containers request the devices. On a cluster node, prints the environment variables,
/// because the device table already contains the resource names. On any other host, prints for each
/// engine a command that a user can copy.
fn print_requests(
    scan: &Scan,
    config: &Config,
    style: Style,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out)?;
    if scan.is_cluster_node {
        let variables = scan.devices.iter();
        let variables = variables.map(|device| (&*device.class, &*device.variable));
        let variables: BTreeMap<_, _> = collect_by_insertion(variables);
        let variables = variables.iter();
        let variables: Vec<_> = variables
            .map(|(class, variable)| format!("{class} by {variable}"))
            .collect();
        let text = format!("containers request {}", variables.join(", "));
        return style.write_paragraph(out, &text);
    }
    // A container that requests an unhealthy device is refused.
    let healthy_devices = scan.devices.iter().filter(|device| device.is_healthy);
    let Some(device) = healthy_devices.min_by_key(|device| device.kind) else {
        return Ok(());
    };
    let methods = DeliveryMethods::find(config);
    let describe_request =
        |launcher: Launcher| launcher.describe_available_request(&methods, device);
    let text = format!(
        "a container gets {} of class {} by",
        device.id, device.class
    );
    style.write_paragraph(out, &text)?;
    for request in Launcher::find_installed(config)
        .into_iter()
        .map(describe_request)
    {
        style.write_paragraph(out, &format!("- {request}"))?;
    }
    Ok(())
}

/// Prints the aliases of each device. Leaves out aliases that several devices have, such as the
/// name of a GPU that all its partitions share.
fn print_aliases(style: Style, out: &mut impl Write, devices: &[ListedDevice]) -> io::Result<()> {
    let mut is_first = true;
    for device in devices {
        let names = device.unique_aliases.iter().map(String::as_str);
        let names: Vec<&str> = names.filter(|name| *name != device.id).collect();
        if names.is_empty() {
            continue;
        }
        if mem::take(&mut is_first) {
            writeln!(out)?;
        }
        style.write_paragraph(out, &format!("{} is also {}", device.id, names.join(", ")))?;
    }
    Ok(())
}
