//! The devices that would be advertised on this host, as a table and as JSON
//! with the keys of `boathook list`.

use std::fmt::Write;
use std::time::Instant;

use device_class::config::Config;
use device_class::discover::Health;
use device_class::host::RealHost;
use serde_json::{Value, json};

use crate::catalog::{AdvertisedDevice, Classes, Inventory, Memory, Resource, scan};

/// The result of one device scan.
#[derive(Debug)]
pub struct Listing {
    inventory: Inventory,
    /// What was left out and why: a line each.
    pub problems: Vec<String>,
}

impl Listing {
    /// Scans the host that `config` names.
    ///
    /// # Errors
    /// The host's root cannot be opened.
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

    fn devices(&self) -> impl Iterator<Item = (&Resource, &AdvertisedDevice)> {
        let resources = self.inventory.values();
        resources.flat_map(|resource| resource.devices().iter().map(move |d| (&**resource, d)))
    }

    /// The table of all devices.
    pub fn table(&self) -> String {
        let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let head = ["CLASS", "DEVICE", "RESOURCE", "NUMA", "GROUP", "HEALTH"].map(str::to_owned);
        let rows = self.devices().map(|(resource, device)| {
            [
                resource.terms.class.to_string(),
                device.id.to_string(),
                resource.name.to_string(),
                or_dash(device.numa.map(|node| node.to_string())),
                or_dash(device.group.clone()),
                device.health.to_string(),
            ]
        });
        let rows: Vec<[String; 6]> = std::iter::once(head).chain(rows).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths = [0, 1, 2, 3, 4].map(width);
        let mut table = String::new();
        for row in &rows {
            for (cell, width) in row.iter().zip(widths) {
                // Writing to a string does not fail.
                let _ = write!(table, "{cell:width$}  ");
            }
            table.push_str(&row[5]);
            table.push('\n');
        }
        table
    }

    /// One object for each device.
    pub fn json(&self) -> Value {
        let objects = self.devices().map(|(resource, device)| {
            let mut object = json!({
                "class": resource.terms.class.as_str(),
                "id": device.id.as_str(),
                "resource": resource.name.as_str(),
                "healthy": device.is_healthy(),
                "numa": device.numa,
                "group": device.group,
            });
            if let Health::Unhealthy { reason } = &device.health {
                object["reason"] = reason.as_str().into();
            }
            object
        });
        objects.collect()
    }
}
