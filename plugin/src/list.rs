//! The devices that would be advertised on this host, as a table and as JSON
//! with the keys of `boathook list`.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use device_class::class::Server;
use device_class::config::Config;
use device_class::discover::Health;
use device_class::host::RealHost;
use device_class::name::ClassName;
use device_class::similar;
use device_class::strict_toml::FileError;
use host_inventory::{Classes, Memory, judge};
use serde_json::{Value, json};

use crate::catalog::{AdvertisedDevice, Claimed, Resource, Resources, scan};
use crate::kubelet_dir;

/// The result of one device scan.
#[derive(Debug)]
pub struct Listing {
    inventory: Resources,
    /// The omitted devices and classes, a line each with the reason.
    pub problems: Vec<String>,
}

/// Why devices cannot be listed.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    #[error("cannot open host root {}", path.display())]
    HostRoot {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("no class file {name}.toml on this host; {hint}")]
    UnknownClass { name: ClassName, hint: String },
    /// The configuration does not enable the class, or its file does not.
    #[error(
        "class {0} is not enabled, so the plugin does not serve it; write `enabled = true`, and no \
         `serve`, below [class.{0}] in the configuration"
    )]
    NotEnabled(ClassName),
}

impl Listing {
    /// Scans the host that `config` names for the devices of the classes with these
    /// names, or of all. Claims are those of the kubelet with this root directory.
    pub fn of(config: &Config, kubelet: &Path, names: &[ClassName]) -> Result<Self, ListError> {
        let classes = Classes::load(config, Server::Plugin).unwrap_or_else(|error| Classes {
            errors: vec![error],
            ..Classes::default()
        });
        let mut problems = problems(names, &classes)?;
        let mut usable = classes.usable;
        usable.retain(|class| names.is_empty() || names.contains(&class.name));
        let host = RealHost::open(&config.host_root).map_err(|source| ListError::HostRoot {
            path: config.host_root.clone(),
            source,
        })?;
        let judged = judge(&usable, &host, &mut Memory::new(), Instant::now());
        let (claimed, unreadable) = Claimed::read(&kubelet_dir::claims(kubelet));
        problems.extend(unreadable);
        let found = scan(judged, &claimed, None);
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

/// Why class files are left out: those of these classes, or all.
fn problems(names: &[ClassName], classes: &Classes) -> Result<Vec<String>, ListError> {
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
        let mut known = classes.sources.iter().map(|source| &source.name);
        if known.any(|known| known == name) {
            return Err(ListError::NotEnabled(name.clone()));
        }
        return Err(unknown(name, classes));
    }
    let concerns = |error: &&FileError| {
        let path = error.path();
        let is_class = path.extension().is_some_and(|ending| ending == "toml");
        // A directory may have files of any class.
        !is_class || names.is_empty() || names.iter().any(|name| path.ends_with(file(name)))
    };
    let errors = classes.errors.iter().filter(concerns);
    Ok(errors.map(ToString::to_string).collect())
}

fn unknown(name: &ClassName, classes: &Classes) -> ListError {
    let known = classes.sources.iter().map(|source| source.name.as_str());
    ListError::UnknownClass {
        hint: match similar::nearest(name.as_str(), known) {
            Some(near) => format!("did you mean {near}?"),
            None => "`boathook-plugin list` shows all classes".to_owned(),
        },
        name: name.clone(),
    }
}
