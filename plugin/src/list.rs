//! What would be advertised on this host, for people and for scripts.

use std::fmt::Write;
use std::time::Instant;

use device_class::config::Config;
use device_class::host::RealHost;
use serde_json::{Value, json};

use crate::catalog::{AdvertisedDevice, Classes, Inventory, Memory, scan};

/// What one look at the host gives.
#[derive(Debug)]
pub struct Listing {
    /// The resources with their devices.
    pub inventory: Inventory,
    /// What was left out and why: a line each.
    pub problems: Vec<String>,
}

impl Listing {
    /// Looks at the host that `config` names.
    ///
    /// # Errors
    /// The host's root can't be opened.
    pub fn of(config: &Config) -> std::io::Result<Self> {
        let (usable, errors) = match Classes::load(config) {
            Ok(classes) => (classes.usable, classes.errors),
            Err(error) => (Vec::new(), vec![error]),
        };
        let mut problems: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let host = RealHost::open(&config.host_root)?;
        let found = scan(&usable, &host, &mut Memory::new(), Instant::now());
        problems.extend(found.warnings);
        Ok(Listing {
            inventory: found.inventory,
            problems,
        })
    }

    fn rows(&self) -> impl Iterator<Item = [String; 5]> {
        let or_none = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        self.inventory.values().flat_map(move |resource| {
            resource.devices().iter().map(move |device| {
                [
                    resource.name.to_string(),
                    device.id.to_string(),
                    or_none(device.numa.map(|node| node.to_string())),
                    or_none(device.group.clone()),
                    device.health.to_string(),
                ]
            })
        })
    }

    /// A table.
    pub fn table(&self) -> String {
        let head = ["RESOURCE", "DEVICE", "NUMA", "GROUP", "HEALTH"].map(str::to_owned);
        let rows: Vec<[String; 5]> = std::iter::once(head).chain(self.rows()).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths = [0, 1, 2, 3].map(width);
        let mut table = String::new();
        for row in &rows {
            for (cell, width) in row.iter().zip(widths) {
                // Writing to a string does not fail.
                let _ = write!(table, "{cell:width$}  ");
            }
            table.push_str(&row[4]);
            table.push('\n');
        }
        table
    }

    /// The same for a program: `{"resources":[…],"problems":[…]}`.
    pub fn json(&self) -> Value {
        let device = |device: &AdvertisedDevice| {
            json!({
                "id": device.id.as_str(),
                "healthy": device.is_healthy(),
                "health": device.health.to_string(),
                "numa": device.numa,
                "group": device.group,
            })
        };
        let resources: Vec<Value> = self
            .inventory
            .values()
            .map(|resource| {
                let devices: Vec<Value> = resource.devices().iter().map(device).collect();
                json!({
                    "name": resource.name.as_str(),
                    "class": resource.terms.class.as_str(),
                    "devices": devices,
                })
            })
            .collect();
        json!({ "resources": resources, "problems": self.problems })
    }
}
