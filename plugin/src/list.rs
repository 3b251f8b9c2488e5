//! Lists the devices that the plugin would advertise on this host, as a table or as JSON. The JSON
//! has the same keys as that of `boathook list`.

use std::fmt::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use daemon::host_inventory::{Classes, ScanState, scan_host};
use device_class::class::Server;
use device_class::config::Config;
use device_class::discover::Health;
use device_class::host::RealHost;
use device_class::name::ClassName;
use device_class::similar;
use device_class::strict_toml::FileError;
use serde_json::{Value, json};

use crate::catalog::{
    AdvertisedDevice, ClaimedDevices, PodAllocations, Resource, Resources, build_resources,
};
use crate::kubelet_dir;

/// The result of `boathook-plugin list`: the resources of one scan, and the reasons for omitted
/// devices and classes.
#[derive(Debug)]
pub struct Listing {
    resources: Resources,
    /// One line for each omitted device or class, with the reason.
    pub problems: Vec<String>,
    /// Warnings about configuration sections for classes that do not exist.
    pub warnings: Vec<String>,
}

impl Listing {
    /// Scans the host for the devices of the classes `class_names`, or of all classes if the list
    /// is empty. `kubelet_root` is the kubelet's root directory, below which `boathook-dra` keeps
    /// the claim records.
    pub fn scan(
        config: &Config,
        kubelet_root: &Path,
        class_names: &[ClassName],
    ) -> anyhow::Result<Self> {
        let classes = Classes::load(config, Server::Plugin).unwrap_or_else(|error| Classes {
            errors: vec![error],
            ..Classes::default()
        });
        let mut problems = find_unusable_classes(class_names, &classes)?;
        // The configuration may name a class that does not exist. This is checked only if all class
        // files are readable, because an unreadable file may define that class.
        let known_classes = classes.sources.iter().map(|source| source.name.as_str());
        let warnings = if classes.errors.is_empty() {
            config.describe_unknown_classes(known_classes).collect()
        } else {
            Vec::new()
        };
        let mut selected_classes = classes.usable_classes;
        selected_classes
            .retain(|class| class_names.is_empty() || class_names.contains(&class.name));
        let root = &config.host_root;
        let host = RealHost::open(root)
            .with_context(|| format!("cannot open host root {}", root.display()))?;
        let mut memory = ScanState::with_unmounted_classes(classes.unmounted_classes);
        let mut host_scan = scan_host(&selected_classes, &host, &mut memory, Instant::now());
        let errors = host_scan.class_errors.iter();
        problems.extend(errors.map(|error| error.message.clone()));
        let (claimed_devices, record_errors) =
            ClaimedDevices::read(&kubelet_dir::claim_records_dir(kubelet_root));
        problems.extend(record_errors);
        let checkpoint_path = kubelet_dir::checkpoint_path(kubelet_root);
        PodAllocations::new(checkpoint_path, root).withhold_renamed_devices(&mut host_scan);
        let resource_scan = build_resources(host_scan, &claimed_devices, None);
        problems.extend(resource_scan.warnings);
        Ok(Listing {
            resources: resource_scan.resources,
            problems,
            warnings,
        })
    }

    fn iter_devices(&self) -> impl Iterator<Item = (&Resource, &AdvertisedDevice)> {
        let resources = self.resources.values();
        resources.flat_map(|resource| {
            resource
                .devices()
                .iter()
                .map(move |device| (&**resource, device))
        })
    }

    pub fn to_table(&self) -> String {
        let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let head = ["CLASS", "DEVICE", "RESOURCE", "NUMA", "GROUP", "HEALTH"].map(str::to_owned);
        let rows = self.iter_devices().map(|(resource, device)| {
            [
                resource.properties.class.to_string(),
                device.id.to_string(),
                resource.name.to_string(),
                or_dash(device.numa_node.map(|node| node.to_string())),
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
                // The result is ignored, because writing to a string cannot fail.
                let _ = write!(table, "{cell:width$}  ");
            }
            table.push_str(&row[5]);
            table.push('\n');
        }
        table
    }

    /// Returns a JSON object with the devices, and with the reasons for omitted devices and
    /// classes.
    pub fn to_json(&self) -> Value {
        let objects = self.iter_devices().map(|(resource, device)| {
            let mut object = json!({
                "class": resource.properties.class.as_str(),
                "id": device.id.as_str(),
                "resource": resource.name.as_str(),
                "healthy": device.is_healthy(),
                "numa": device.numa_node,
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

/// Returns the errors in the class files of `class_names`, or in all class files if the list is
/// empty. Fails if one of these classes does not exist or is not enabled.
fn find_unusable_classes(
    class_names: &[ClassName],
    classes: &Classes,
) -> anyhow::Result<Vec<String>> {
    let file_name = |name: &ClassName| format!("{name}.toml");
    for name in class_names {
        let is_served = classes
            .usable_classes
            .iter()
            .any(|class| class.name == *name);
        let has_error = classes
            .errors
            .iter()
            .any(|error| error.path().ends_with(file_name(name)));
        if is_served || has_error {
            continue;
        }
        let known_classes = classes.sources.iter().map(|source| source.name.as_str());
        ensure!(
            !known_classes
                .clone()
                .any(|known_name| known_name == name.as_str()),
            "class {name} is not enabled, so the plugin does not serve it; write `enabled = true`, \
             and no `serve`, below [class.{name}] in the configuration"
        );
        let hint = match similar::find_most_similar(name.as_str(), known_classes) {
            Some(similar_name) => format!("did you mean {similar_name}?"),
            None => "`boathook-plugin list` shows all classes".to_owned(),
        };
        bail!("no class file {name}.toml on this host; {hint}");
    }
    let is_relevant = |error: &&FileError| {
        let path = error.path();
        let is_class_file = path
            .extension()
            .is_some_and(|extension| extension == "toml");
        // An error that concerns a whole directory is always relevant, because the directory may
        // contain any class.
        !is_class_file
            || class_names.is_empty()
            || class_names
                .iter()
                .any(|name| path.ends_with(file_name(name)))
    };
    let errors = classes.errors.iter().filter(is_relevant);
    Ok(errors.map(ToString::to_string).collect())
}
