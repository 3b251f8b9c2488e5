//! Lists the devices that would be advertised on this host, as a table or as JSON with the keys of
//! `boathook list`.

use std::fmt::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use device_class::class::Server;
use device_class::config::Config;
use device_class::discover::Health;
use device_class::host::RealHost;
use device_class::name::ClassName;
use device_class::similar;
use device_class::strict_toml::FileError;
use host_inventory::{Classes, ScanMemory, scan_host};
use serde_json::{Value, json};

use crate::catalog::{AdvertisedDevice, ClaimedDevices, Resource, Resources, build_resources};
use crate::kubelet_dir;

/// The resources of one scan, with the reasons for what they lack.
#[derive(Debug)]
pub struct Listing {
    inventory: Resources,
    /// One line for each omitted device or class, with the reason.
    pub problems: Vec<String>,
    /// Warnings about configuration sections for classes that do not exist.
    pub warnings: Vec<String>,
}

impl Listing {
    /// Scans the host for the devices of the classes `names`, or of all classes if `names` is
    /// empty. `kubelet` is the kubelet's root directory, which has the claim records.
    pub fn scan(config: &Config, kubelet: &Path, names: &[ClassName]) -> anyhow::Result<Self> {
        let classes = Classes::load(config, Server::Plugin).unwrap_or_else(|error| Classes {
            errors: vec![error],
            ..Classes::default()
        });
        let mut problems = find_unusable_classes(names, &classes)?;
        // An unreadable file may define the class that seems to be missing.
        let known = classes.sources.iter().map(|source| source.name.as_str());
        let warnings = if classes.errors.is_empty() {
            config.warn_of_unknown_classes(known).collect()
        } else {
            Vec::new()
        };
        let mut usable = classes.usable;
        usable.retain(|class| names.is_empty() || names.contains(&class.name));
        let root = &config.host_root;
        let host = RealHost::open(root)
            .with_context(|| format!("cannot open host root {}", root.display()))?;
        let mut memory = ScanMemory::with_unmounted(classes.unmounted);
        let host_scan = scan_host(&usable, &host, &mut memory, Instant::now());
        let errors = host_scan.class_errors.iter();
        problems.extend(errors.map(|error| error.message.clone()));
        let (claimed, unreadable) = ClaimedDevices::read(&kubelet_dir::claim_records(kubelet));
        problems.extend(unreadable);
        let found = build_resources(host_scan, &claimed, None);
        problems.extend(found.warnings);
        Ok(Listing {
            inventory: found.inventory,
            problems,
            warnings,
        })
    }

    fn iter_devices(&self) -> impl Iterator<Item = (&Resource, &AdvertisedDevice)> {
        let resources = self.inventory.values();
        resources.flat_map(|resource| resource.devices().iter().map(move |d| (&**resource, d)))
    }

    pub fn to_table(&self) -> String {
        let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let head = ["CLASS", "DEVICE", "RESOURCE", "NUMA", "GROUP", "HEALTH"].map(str::to_owned);
        let rows = self.iter_devices().map(|(resource, device)| {
            [
                resource.properties.class.to_string(),
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
                // Writing to a string cannot fail.
                let _ = write!(table, "{cell:width$}  ");
            }
            table.push_str(&row[5]);
            table.push('\n');
        }
        table
    }

    /// Returns a JSON object with the devices, and with the reasons for omitted ones.
    pub fn to_json(&self) -> Value {
        let objects = self.iter_devices().map(|(resource, device)| {
            let mut object = json!({
                "class": resource.properties.class.as_str(),
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
        let devices: Vec<Value> = objects.collect();
        json!({ "devices": devices, "problems": self.problems })
    }
}

/// Returns the errors of the class files of `names`, or of all class files if `names` is empty.
fn find_unusable_classes(names: &[ClassName], classes: &Classes) -> anyhow::Result<Vec<String>> {
    let file = |name: &ClassName| format!("{name}.toml");
    for name in names {
        let served = classes.usable.iter().any(|class| class.name == *name);
        let left_out = classes
            .errors
            .iter()
            .any(|error| error.path().ends_with(file(name)));
        if served || left_out {
            continue;
        }
        let known = classes.sources.iter().map(|source| source.name.as_str());
        ensure!(
            !known.clone().any(|known| known == name.as_str()),
            "class {name} is not enabled, so the plugin does not serve it; write `enabled = true`, \
             and no `serve`, below [class.{name}] in the configuration"
        );
        let hint = match similar::find_most_similar(name.as_str(), known) {
            Some(near) => format!("did you mean {near}?"),
            None => "`boathook-plugin list` shows all classes".to_owned(),
        };
        bail!("no class file {name}.toml on this host; {hint}");
    }
    let concerns = |error: &&FileError| {
        let path = error.path();
        let is_class = path.extension().is_some_and(|ending| ending == "toml");
        // An error of a whole directory may concern any class.
        !is_class || names.is_empty() || names.iter().any(|name| path.ends_with(file(name)))
    };
    let errors = classes.errors.iter().filter(concerns);
    Ok(errors.map(ToString::to_string).collect())
}
