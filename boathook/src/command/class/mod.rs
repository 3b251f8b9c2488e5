//! Implements `boathook class`, whose subcommands help to write and test class files.

mod check;
mod record;
mod starter;
mod trial;

use std::io::{self, Write};
use std::path::Path;

use device_class::HostView;
use device_class::class::JSON_SCHEMA;
use device_class::config::{CONFIG_JSON_SCHEMA, Config};
use device_class::host::Entry;
use device_class::load;
use hook::exit::ExitCode;
use hook::planner;
use serde_json::json;

pub(super) use starter::TargetError;

pub(super) use starter::find_class_new_argument;
use starter::{InstalledNames, Target, find_offered_devices, find_usb_ids_of_node};

use super::{CommandError, print_json};
use crate::cli::ClassCommand;

pub(super) fn run(
    command: &ClassCommand,
    as_json: bool,
    config: &Config,
    config_file: Option<&Path>,
) -> Result<ExitCode, CommandError> {
    match command {
        ClassCommand::Check(arguments) => return check::run(arguments, as_json, config),
        ClassCommand::Record {
            directory,
            files,
            classes,
        } => {
            return record::run(directory, files, classes, as_json, config);
        }
        ClassCommand::New { device, nodes } => {
            let host = planner::open_host(config)?;
            let target = Target::parse(device)?.resolve(&host)?;
            let class_file_text =
                target.format_class_file(nodes, &InstalledNames::read(config)?, &host)?;
            let target_node = matches!(target, Target::Node { .. }).then_some(device);
            for node in target_node.into_iter().chain(nodes) {
                warn_if_not_device_node(Path::new(node), &host);
            }
            for node in target.find_nodes_of_other_devices(nodes) {
                warn_about_node_of_other_device(Path::new(device), node, &host);
            }
            let classes = load::read_each_source(&config.classes)?
                .into_iter()
                .flatten();
            let classes = classes.filter_map(|source| config.class(&source).ok());
            for offered_device in find_offered_devices(&target, &host, classes) {
                let (class, device, variable) = (
                    offered_device.class,
                    offered_device.device,
                    offered_device.variable,
                );
                hook::log::warning(&format!(
                    "the class {class} has this device already, as {device}: {variable} requests it \
                     (`boathook list {class}`)"
                ));
            }
            if as_json {
                print_json(&json!({ "class_file": class_file_text }))?;
            } else {
                io::stdout().lock().write_all(class_file_text.as_bytes())?;
            }
        }
        ClassCommand::Test { file, device } => {
            return trial::run(file, device.as_deref(), as_json, (config, config_file));
        }
        ClassCommand::Open { nodes } => return Ok(trial::open_nodes(nodes)?),
        ClassCommand::Schema { is_for_config } => {
            let schema = if *is_for_config {
                CONFIG_JSON_SCHEMA
            } else {
                JSON_SCHEMA
            };
            io::stdout().lock().write_all(schema.as_bytes())?;
        }
    }
    Ok(ExitCode::Success)
}

/// Logs a warning if `path` is not a device node of this host, because the user may have mistyped
/// it. It is not an error, because a class file may be written before the device is installed.
fn warn_if_not_device_node(path: &Path, host: &dyn HostView) {
    let problem = match host.entry(path) {
        Ok(Some(Entry::Device(_) | Entry::Directory)) => return,
        Ok(Some(entry)) => format!("is {entry}, not a device"),
        Ok(None) => "is not on this host".to_owned(),
        Err(error) => format!("cannot be read: {error}"),
    };
    hook::log::warning(&format!(
        "{} {problem}; the class file is printed nevertheless",
        path.display()
    ));
}

/// Logs a warning that the class file describes `node` and `other_node` as nodes of two devices,
/// because their names differ in a number, such as /dev/video0 and /dev/video1. The warning
/// contains the command for one device with both nodes.
fn warn_about_node_of_other_device(node: &Path, other_node: &str, host: &dyn HostView) {
    let ids = find_usb_ids_of_node(node, host);
    let target = ids.map_or("usb:VENDOR:PRODUCT".to_owned(), |(vendor, product)| {
        format!("usb:{vendor}:{product}")
    });
    let node = node.display();
    hook::log::warning(&format!(
        "{node} and {other_node} are two devices in this class, since their names differ in a number: \
         for one device with both name it by its ids, as in `boathook class new {target} {node} \
         {other_node}`"
    ));
}
