//! `boathook list`.

use device_class::inserted;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::mem;

use device_class::config::Config;
use device_class::discover;
use device_class::facts::Facts;
use device_class::load;
use device_class::name::ClassName;
use injection_plan::request::RequestNames;

use super::devices::{self, Listed};
use super::finding::no_class_file;
use super::holders::Holders;
use super::output::Style;
use super::{CommandError, asked, print_json};
use crate::exit::ExitCode;
use crate::planner;

/// Prints the devices of the named classes. Without names, the devices are those of the enabled
/// classes, or of every class if `all` is set. With `used`, only devices that containers hold
/// are printed. A class file that cannot be used is reported, and the list continues.
pub(super) fn run(
    names: &[ClassName],
    all: bool,
    used: bool,
    json: bool,
    holders: Option<&Holders>,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let host = planner::open_host(config)?;
    let mut listed = Vec::new();
    let mut classes = Vec::new();
    let mut empty = Vec::new();
    let mut hidden = Vec::new();
    let mut not_enabled = Vec::new();
    let mut left_out = Vec::new();
    let mut code = ExitCode::Success;
    let sources = load::each_source(&config.classes)?;
    if sources.is_empty() {
        crate::log::warning(&no_class_file(config));
    }
    // A class file that cannot be read could be the class that is missing.
    if sources.iter().all(Result::is_ok) {
        let known = sources.iter().flatten();
        let known = known.map(|source| source.name.as_str());
        for warning in config.warn_of_unknown_classes(known) {
            crate::log::warning(&warning);
        }
    }
    for source in asked(names, sources)? {
        let class = match source.and_then(|source| config.class(&source)) {
            Ok(class) => class,
            Err(error) => {
                let reason = crate::log::chain(&error);
                crate::log::error(&format!("class left out: {reason}"));
                left_out.push(reason);
                code = ExitCode::Config;
                continue;
            }
        };
        let mut inventory = discover::devices(&class, &host);
        if let Some(reason) = discover::missing(&class, &host) {
            inventory.refuse(&reason);
        }
        inventory.refuse_mixed(&class);
        if names.is_empty() && !all && !used && !class.spec.enabled {
            if !inventory.devices.is_empty() {
                not_enabled.push(format!("{} ({})", class.name, inventory.devices.len()));
            }
            continue;
        }
        if !inventory.devices.is_empty() {
            inventory
                .warnings
                .extend(Facts::describe_absence(&class, &host));
        }
        let capabilities = class.spec.request.capabilities_by_default();
        let lacks = discover::find_lacks(&class, &capabilities, &inventory, &host);
        inventory.warnings.extend(lacks);
        for warning in &inventory.warnings {
            crate::log::warning(&format!("class {}: {warning}", class.name));
        }
        if inventory.devices.is_empty() {
            empty.push(class.name.to_string());
            if !inventory.hidden.is_empty() {
                hidden.push(format!("{} ({})", class.name, inventory.hidden.len()));
            }
        }
        classes.push(class.name.to_string());
        let request_names = RequestNames::new(&class, &inventory);
        listed.extend(inventory.devices.iter().map(|device| {
            let mut listed = Listed::new(&class, device, &request_names);
            listed.holders = holders.map(|holders| holders.holders_of(&class.name, device));
            listed
        }));
    }
    if used {
        listed.retain(|device| device.holders.iter().flatten().next().is_some());
    }
    let waiting: Vec<_> = match holders {
        Some(holders) if used => holders.find_waiting(&classes).collect(),
        _ => Vec::new(),
    };
    if json {
        let mut list = serde_json::json!({
            "classes": classes,
            "without_devices": empty,
            "not_enabled": not_enabled,
            "left_out": left_out,
            "devices": listed,
        });
        if used {
            list["waiting"] = serde_json::to_value(&waiting)?;
        }
        print_json(&list)?;
        return Ok(code);
    }
    let mut out = io::stdout().lock();
    let style = Style::of_stdout();
    if used && listed.is_empty() {
        style.text(&mut out, "no container that runs has a device")?;
    } else {
        devices::print_table(style, &mut out, &listed)?;
    }
    for waiting in &waiting {
        style.text(&mut out, &waiting.text())?;
    }
    if used && listed.is_empty() {
        return Ok(code);
    }
    let variables = listed
        .iter()
        .map(|device| (&*device.class, &*device.variable));
    let variables: BTreeMap<_, _> = inserted(variables);
    if !variables.is_empty() {
        let variables = variables.iter();
        let variables: Vec<_> = variables
            .map(|(class, variable)| format!("{class} by {variable}"))
            .collect();
        writeln!(out)?;
        style.text(
            &mut out,
            &format!("containers request {}", variables.join(", ")),
        )?;
    }
    // A user who names a class may look for a device's alias. A list of all classes would have
    // too many aliases.
    if !names.is_empty() {
        print_names(style, &mut out, &listed)?;
    }
    let mut ill = listed.iter().filter(|device| !device.healthy).peekable();
    if ill.peek().is_some() {
        writeln!(out)?;
    }
    for Listed { id, reason, .. } in ill {
        let reason = reason.as_deref().unwrap_or_default();
        style.text(&mut out, &format!("{id} is unhealthy: {reason}"))?;
    }
    if !empty.is_empty() && !used {
        writeln!(out)?;
        style.text(&mut out, &format!("no devices of {}", empty.join(", ")))?;
    }
    if !hidden.is_empty() && !used {
        let text = format!("config.toml hides all devices of {}", hidden.join(", "));
        style.text(&mut out, &text)?;
    }
    if !not_enabled.is_empty() {
        let text = format!(
            "devices of classes that are not enabled, shown by name or with --all: {}",
            not_enabled.join(", ")
        );
        style.text(&mut out, &text)?;
    }
    Ok(code)
}

/// Prints the aliases of each device. An alias of several devices, such as the name of a GPU
/// that all its parts share, is left out.
fn print_names(style: Style, out: &mut impl Write, listed: &[Listed]) -> io::Result<()> {
    let mut is_first = true;
    for device in listed {
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
