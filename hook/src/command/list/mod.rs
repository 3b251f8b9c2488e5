//! Implements `boathook list`, which prints the devices of this host and how to request them.

mod scan;
mod watch;

use device_class::inserted;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::mem;

use device_class::config::Config;
use device_class::name::ClassName;

use super::devices::{self, ListedDevice, RequestColumn};
use super::engine_words::{DeliveryMethods, Launcher};
use super::holders::{Holders, WaitingContainer};
use super::output::Style;
use super::{CommandError, print_json};
use crate::exit::ExitCode;

use scan::{ListedClasses, Scan};
pub(super) use watch::watch;

/// The options of `boathook list`.
pub(super) struct ListOptions<'a> {
    pub(super) names: &'a [ClassName],
    /// True if all classes are listed (`--all`), including those that are not listed by default.
    pub(super) include_all: bool,
    /// True if only devices that containers hold are listed.
    pub(super) only_used: bool,
    /// True if classes without devices are listed too.
    pub(super) show_empty: bool,
    pub(super) as_json: bool,
}

impl ListOptions<'_> {
    fn classes(&self) -> ListedClasses<'_> {
        ListedClasses {
            names: self.names,
            include_all: self.include_all || self.only_used,
        }
    }
}

/// Prints the devices of the named classes. Without names, it prints the devices of the enabled
/// classes on a node of a cluster, and those of all classes on any other host. An invalid class
/// file results in a warning and does not end the list.
pub(super) fn run(
    options: &ListOptions<'_>,
    holders: Option<&Holders>,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let mut scan = Scan::run(&options.classes(), holders, config)?;
    scan.report_problems();
    let waiting_containers: Vec<WaitingContainer> = match holders {
        Some(holders) if options.only_used => holders
            .find_waiting_containers(&scan.classes)
            .map(|container| container.clone().with_suggestion(&scan.devices))
            .collect(),
        _ => Vec::new(),
    };
    if options.only_used {
        let is_held = |device: &ListedDevice| device.holders.iter().flatten().next().is_some();
        scan.devices.retain(is_held);
    }
    if options.as_json {
        let mut list = scan.to_json();
        if options.only_used {
            list["waiting"] = serde_json::to_value(&waiting_containers)?;
        }
        print_json(&list)?;
        return Ok(scan.exit_code());
    }
    let mut out = io::stdout().lock();
    let style = Style::for_stdout();
    if options.only_used {
        if scan.devices.is_empty() {
            style.write_paragraph(&mut out, "no container that runs has a device")?
        } else {
            print_devices(&scan, style, &mut out)?
        }
        for container in &waiting_containers {
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

/// Prints the devices, how containers request them, and why devices are missing.
fn print_scan(
    scan: &Scan,
    options: &ListOptions<'_>,
    config: &Config,
    style: Style,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    let names_classes = !options.names.is_empty();
    if scan.devices.is_empty() {
        if !names_classes && scan.has_class_file {
            let text = "no device of any class on this host; `boathook list -v` names the classes, \
                        and `boathook class new /dev/NODE` writes one for your own device";
            style.write_paragraph(out, text)?;
        }
    } else {
        print_devices(scan, style, out)?;
        print_requests(scan, config, style, out)?;
    }
    // Aliases are printed only if the user has named classes, because a list of all classes would
    // have too many aliases.
    if names_classes {
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
    // Most hosts have devices of a few classes only, so the others are not listed by default.
    if (names_classes || options.show_empty) && !scan.classes_without_devices.is_empty() {
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
    if !scan.disabled_classes.is_empty() && (scan.is_node || options.show_empty) {
        let explanation = if scan.is_node {
            "not offered to pods unless config.toml enables the class"
        } else {
            "virtual devices"
        };
        let classes = scan.disabled_classes.join(", ");
        style.write_paragraph(
            out,
            &format!("{explanation}, and shown by name or with --all: {classes}"),
        )?;
    }
    Ok(())
}

fn print_devices(scan: &Scan, style: Style, out: &mut impl Write) -> io::Result<()> {
    let column = if scan.is_node {
        RequestColumn::Resource
    } else {
        RequestColumn::Variable
    };
    devices::print_table_with(column, style, out, &scan.devices)
}

/// Prints how containers request the devices. On a node of a cluster, the table has the resources,
/// and the variables are printed here. On any other host, a command to copy is printed for each
/// engine.
fn print_requests(
    scan: &Scan,
    config: &Config,
    style: Style,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out)?;
    if scan.is_node {
        let variables = scan.devices.iter();
        let variables = variables.map(|device| (&*device.class, &*device.variable));
        let variables: BTreeMap<_, _> = inserted(variables);
        let variables = variables.iter();
        let variables: Vec<_> = variables
            .map(|(class, variable)| format!("{class} by {variable}"))
            .collect();
        let text = format!("containers request {}", variables.join(", "));
        return style.write_paragraph(out, &text);
    }
    let devices = scan.devices.iter();
    let Some(device) = devices.min_by_key(|device| (!device.is_healthy, device.kind)) else {
        return Ok(());
    };
    let methods = DeliveryMethods::find(config);
    let describe = |launcher: Launcher| launcher.describe_available_request(&methods, device);
    let text = format!(
        "a container gets {} of class {} by",
        device.id, device.class
    );
    style.write_paragraph(out, &text)?;
    for request in Launcher::find_all(config).into_iter().map(describe) {
        style.write_paragraph(out, &format!("- {request}"))?;
    }
    Ok(())
}

/// Prints the aliases of each device. An alias that several devices have is left out, such as the
/// name of a GPU that all its parts share.
fn print_aliases(style: Style, out: &mut impl Write, devices: &[ListedDevice]) -> io::Result<()> {
    let mut is_first = true;
    for device in devices {
        let names = device.own_aliases.iter().map(String::as_str);
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
