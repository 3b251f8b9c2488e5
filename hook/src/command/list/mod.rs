//! `boathook list`.

mod scan;
mod watch;

use device_class::inserted;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::mem;

use device_class::config::Config;
use device_class::name::ClassName;

use super::devices::{self, ListedDevice, RequestColumn};
use super::engine_words::Launcher;
use super::holders::Holders;
use super::output::Style;
use super::{CommandError, print_json};
use crate::exit::ExitCode;

use scan::{ListedClasses, Scan};
pub(super) use watch::watch;

/// The options of `boathook list`.
pub(super) struct ListOptions<'a> {
    pub(super) names: &'a [ClassName],
    /// Every class, also those that are not listed by default.
    pub(super) all: bool,
    /// Only devices that containers hold.
    pub(super) used: bool,
    /// Also the classes without devices.
    pub(super) verbose: bool,
    pub(super) json: bool,
}

impl ListOptions<'_> {
    fn classes(&self) -> ListedClasses<'_> {
        ListedClasses {
            names: self.names,
            all: self.all || self.used,
        }
    }
}

/// Prints the devices of the named classes. Without names, the devices are those of the enabled
/// classes on a node of a cluster, and those of every class on another host. A class file that
/// cannot be used is reported, and the list continues.
pub(super) fn run(
    options: &ListOptions<'_>,
    holders: Option<&Holders>,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let mut scan = Scan::run(&options.classes(), holders, config)?;
    scan.report_problems();
    if options.used {
        let is_held = |device: &ListedDevice| device.holders.iter().flatten().next().is_some();
        scan.devices.retain(is_held);
    }
    let waiting_containers: Vec<_> = match holders {
        Some(holders) if options.used => holders.find_waiting(&scan.classes).collect(),
        _ => Vec::new(),
    };
    if options.json {
        let mut list = scan.to_json();
        if options.used {
            list["waiting"] = serde_json::to_value(&waiting_containers)?;
        }
        print_json(&list)?;
        return Ok(scan.exit_code());
    }
    let mut out = io::stdout().lock();
    let style = Style::of_stdout();
    if options.used {
        match scan.devices.is_empty() {
            true => style.text(&mut out, "no container that runs has a device")?,
            false => print_devices(&scan, style, &mut out)?,
        }
        for container in &waiting_containers {
            style.text(&mut out, &container.text())?;
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
            "without_devices": self.without_devices,
            "not_enabled": self.not_enabled,
            "left_out": self.left_out,
            "devices": self.devices,
        })
    }
}

/// Prints the devices, the ways to request them, and the reasons why devices are missing.
fn print_scan(
    scan: &Scan,
    options: &ListOptions<'_>,
    config: &Config,
    style: Style,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    let names_classes = !options.names.is_empty();
    if scan.devices.is_empty() {
        if !names_classes {
            let text = "no device of any class on this host; `boathook list -v` names the classes, \
                        and `boathook class new /dev/NODE` writes one for your own device";
            style.text(out, text)?;
        }
    } else {
        print_devices(scan, style, out)?;
        print_requests(scan, config, style, out)?;
    }
    // A user who names a class may look for a device's alias. A list of all classes would have
    // too many aliases.
    if names_classes {
        print_aliases(style, out, &scan.devices)?;
    }
    let mut unhealthy_devices = scan
        .devices
        .iter()
        .filter(|device| !device.healthy)
        .peekable();
    if unhealthy_devices.peek().is_some() {
        writeln!(out)?;
    }
    for ListedDevice { id, reason, .. } in unhealthy_devices {
        let reason = reason.as_deref().unwrap_or_default();
        style.text(out, &format!("{id} is unhealthy: {reason}"))?;
    }
    // Most hosts have no device of most classes.
    if (names_classes || options.verbose) && !scan.without_devices.is_empty() {
        writeln!(out)?;
        let text = format!("no devices of {}", scan.without_devices.join(", "));
        style.text(out, &text)?;
    }
    if !scan.hidden.is_empty() {
        let text = format!(
            "config.toml hides all devices of {}",
            scan.hidden.join(", ")
        );
        style.text(out, &text)?;
    }
    if !scan.not_enabled.is_empty() && (scan.is_node || options.verbose) {
        let explanation = match scan.is_node {
            true => "not offered to pods unless config.toml enables the class",
            false => "virtual devices",
        };
        let classes = scan.not_enabled.join(", ");
        style.text(
            out,
            &format!("{explanation}, and shown by name or with --all: {classes}"),
        )?;
    }
    Ok(())
}

fn print_devices(scan: &Scan, style: Style, out: &mut impl Write) -> io::Result<()> {
    let column = match scan.is_node {
        true => RequestColumn::Resource,
        false => RequestColumn::Variable,
    };
    devices::print_table_with(column, style, out, &scan.devices)
}

/// Prints how containers request the devices. On a node these are the variables, beside the
/// resources of the table. On another host it is a line to copy for each engine of the host.
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
        return style.text(out, &text);
    }
    let is_healthy = |device: &&ListedDevice| device.healthy;
    let mut devices = scan.devices.iter();
    let example_device = devices.clone().find(is_healthy).or_else(|| devices.next());
    let Some(device) = example_device else {
        return Ok(());
    };
    let describe_request = |launcher: Launcher| {
        launcher.describe_request(&device.variable, &device.id, &device.resource)
    };
    let requests: Vec<_> = Launcher::find_all(config)
        .into_iter()
        .map(describe_request)
        .collect();
    style.text(
        out,
        &format!(
            "a container requests a device by its variable: {}",
            requests.join(", or ")
        ),
    )
}

/// Prints the aliases of each device. An alias of several devices, such as the name of a GPU
/// that all its parts share, is left out.
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
        style.text(out, &format!("{} is also {}", device.id, names.join(", ")))?;
    }
    Ok(())
}
