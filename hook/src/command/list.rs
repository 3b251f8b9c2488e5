//! `boathook list`.

use std::io::{self, Write};

use device_class::config::Config;
use device_class::discover::{self, Device, Health, Presence};
use device_class::load::{self, ClassSource};
use device_class::name::ClassName;
use serde::Serialize;

use super::{CommandError, write_table};
use crate::exit::ExitCode;
use crate::planner;

/// A device as `boathook list --json` shows it.
#[derive(Serialize)]
struct Listed {
    class: String,
    id: String,
    resource: String,
    index: Option<String>,
    healthy: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    numa: Option<u32>,
    nodes: Vec<String>,
}

impl Listed {
    fn of(class: &str, device: &Device) -> Self {
        let there = device
            .nodes
            .iter()
            .filter(|node| matches!(node.number, Presence::Found(_)));
        Listed {
            class: class.to_owned(),
            id: device.id.to_string(),
            resource: device.resource.to_string(),
            index: device.index.clone(),
            healthy: device.health.is_healthy(),
            reason: match &device.health {
                Health::Healthy => None,
                Health::Unhealthy { reason } => Some(reason.clone()),
            },
            numa: device.numa,
            nodes: there.map(|node| node.host.display().to_string()).collect(),
        }
    }

    fn row(&self) -> [String; 6] {
        let dash = || "-".to_owned();
        let nodes = self.nodes.join(" ");
        [
            self.class.clone(),
            self.id.clone(),
            self.resource.clone(),
            self.reason
                .as_ref()
                .map_or("healthy".into(), |reason| format!("unhealthy: {reason}")),
            self.numa.map_or_else(dash, |node| node.to_string()),
            if nodes.is_empty() { dash() } else { nodes },
        ]
    }
}

/// Prints every device of the classes with these names, or of all. A class file
/// that cannot be used is reported, and the others are listed nevertheless.
pub(super) fn run(
    names: &[ClassName],
    json: bool,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let host = planner::open_host(config)?;
    let mut listed = Vec::new();
    let mut classes = Vec::new();
    let mut empty = Vec::new();
    let mut code = ExitCode::Success;
    let sources = load::each_source(&config.classes)?;
    if sources.is_empty() {
        let directories = config.classes.iter().map(|path| path.display().to_string());
        let directories: Vec<_> = directories.collect();
        crate::log::warning(&format!("no class file in {}", directories.join(" or ")));
    }
    let known = |name: &ClassName| {
        let mut sources = sources.iter().flatten();
        sources.any(|source| source.name == *name)
    };
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        return Err(CommandError::UnknownClass(unknown.clone()));
    }
    for source in sources {
        let is_asked = |source: &ClassSource| names.is_empty() || names.contains(&source.name);
        if source.as_ref().is_ok_and(|source| !is_asked(source)) {
            continue;
        }
        let class = match source.and_then(|source| config.class(&source)) {
            Ok(class) => class,
            Err(error) => {
                crate::log::error(&format!("class left out: {}", crate::log::chain(&error)));
                code = ExitCode::Config;
                continue;
            }
        };
        let inventory = discover::devices(&class, &host);
        for warning in &inventory.warnings {
            crate::log::warning(&format!("class {}: {warning}", class.name));
        }
        if inventory.devices.is_empty() {
            empty.push(class.name.to_string());
        }
        classes.push(class.name.to_string());
        listed.extend(
            inventory
                .devices
                .iter()
                .map(|d| Listed::of(class.name.as_str(), d)),
        );
    }
    let mut out = io::stdout().lock();
    if json {
        let list = serde_json::json!({ "classes": classes, "devices": listed });
        writeln!(out, "{}", serde_json::to_string_pretty(&list)?)?;
        return Ok(code);
    }
    let head = ["CLASS", "DEVICE", "RESOURCE", "HEALTH", "NUMA", "NODES"].map(str::to_owned);
    let rows: Vec<_> = [head]
        .into_iter()
        .chain(listed.iter().map(Listed::row))
        .collect();
    write_table(&mut out, &rows)?;
    if !empty.is_empty() {
        writeln!(out, "\nno devices of {}", empty.join(", "))?;
    }
    Ok(code)
}
