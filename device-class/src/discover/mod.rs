//! What a host has of a class.

mod attributes;
mod edits;
mod health;
mod search;
mod source;
mod topology;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

pub use edits::{
    DriverRoot, EditsError, FoundDirectory, FoundEdits, FoundFile, FoundLibrary, FoundNode,
    OwnNode, Presence, edits,
};
pub use health::Health;

use crate::class::DeviceClass;
use crate::host::HostView;
use crate::name::{DeviceId, EnvName, ResourceName};
use crate::template::Attributes;

/// As many devices as one class may have on a host: a glob that matches more
/// is taken for a mistake. (What the class names beyond is left out, and said.)
pub const MAX_DEVICES: usize = 4096;

/// The devices of one class on one host.
#[derive(Debug, Clone, Default)]
pub struct Inventory {
    /// Sorted by index, as numbers where they are numbers, then by id.
    pub devices: Vec<Device>,
    /// What was left out, and why: a line each.
    pub warnings: Vec<String>,
    /// The attributes of the host as a whole.
    pub host_attributes: Attributes,
}

/// One device.
#[derive(Debug, Clone)]
pub struct Device {
    /// Its id, the same at every discovery.
    pub id: DeviceId,
    /// The resource that it counts for.
    pub resource: ResourceName,
    /// The number that people use for it.
    pub index: Option<String>,
    /// Other names that a request may use.
    pub aliases: Vec<String>,
    /// Whether it can be given to a container.
    pub health: Health,
    /// The NUMA node that it is on; `None` where the hardware says none.
    pub numa: Option<u32>,
    /// Devices with the same group belong together.
    pub group: Option<String>,
    /// Its nodes, with what the host has there now.
    pub nodes: Vec<FoundNode>,
    /// The variables that Allocate gives with it.
    pub env: BTreeMap<EnvName, String>,
    /// All that was read about it.
    pub attributes: Attributes,
}

/// Finds the devices of a class. What can't be read is left out with a
/// warning: hardware comes and goes while one looks.
pub fn devices(class: &DeviceClass, host: &dyn HostView) -> Inventory {
    let mut inventory = Inventory::default();
    match attributes::read(&class.spec.attributes, None, Attributes::new(), host) {
        Ok(attributes) => inventory.host_attributes = attributes,
        // No driver is loaded: nothing to warn of, and nothing to find.
        Err(attributes::Unread::Absent(_)) => return inventory,
        Err(unread) => {
            inventory.warnings.push(unread.to_string());
            return inventory;
        }
    }
    for source in &class.spec.discover {
        let candidates = source::candidates(
            source,
            &inventory.host_attributes,
            host,
            &mut inventory.warnings,
        );
        if candidates.is_empty() {
            continue;
        }
        for candidate in candidates {
            match device(class, &candidate, host) {
                Ok(device) => inventory.devices.push(device),
                Err(problem) => inventory.warnings.push(format!("{candidate}: {problem}")),
            }
        }
        break;
    }
    inventory.devices.sort_by_cached_key(|device| {
        let number = device
            .index
            .as_ref()
            .and_then(|index| index.parse::<u64>().ok());
        (
            number.is_none(),
            number,
            device.index.clone(),
            device.id.clone(),
        )
    });
    leave_out_duplicates(&mut inventory);
    inventory
}

/// Why a candidate is no device.
#[derive(Debug, thiserror::Error)]
enum DeviceError {
    #[error(transparent)]
    Template(#[from] crate::template::TemplateError),
    #[error(transparent)]
    Path(#[from] crate::class::PathTemplateError),
    #[error(transparent)]
    Name(#[from] crate::name::NameError),
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
}

fn device(
    class: &DeviceClass,
    candidate: &source::Candidate,
    host: &dyn HostView,
) -> Result<Device, DeviceError> {
    let spec = &class.spec.device;
    let attributes = &candidate.attributes;
    let optional = |template: &Option<crate::template::Template>| {
        template
            .as_ref()
            .map(|template| template.fill(attributes))
            .transpose()
    };
    let nodes = spec
        .nodes
        .iter()
        .map(|node| edits::node(node, attributes, false, host));
    let nodes: Vec<FoundNode> = nodes.collect::<Result<_, DeviceError>>()?;
    let env = spec
        .env
        .iter()
        .map(|(name, value)| Ok((name.clone(), value.fill(attributes)?)));
    let aliases: Result<Vec<_>, _> = spec.aliases.iter().map(|a| a.fill(attributes)).collect();
    Ok(Device {
        id: DeviceId::from_hardware(&spec.id.fill(attributes)?)?,
        resource: ResourceName::try_from(class.spec.resource.fill(attributes)?)?,
        index: optional(&spec.index)?,
        aliases: aliases?
            .into_iter()
            .filter(|alias| !alias.is_empty())
            .collect(),
        health: health::of(&spec.health, &nodes, candidate, host),
        numa: match optional(&spec.numa)? {
            Some(start) => topology::numa_node(Path::new(&start), host),
            None => None,
        },
        group: optional(&spec.group)?,
        nodes,
        env: env.collect::<Result<_, DeviceError>>()?,
        attributes: attributes.clone(),
    })
}

/// Two devices with one id can't be told apart: only the first can be given.
fn leave_out_duplicates(inventory: &mut Inventory) {
    let mut seen = BTreeSet::new();
    let warnings = &mut inventory.warnings;
    inventory.devices.retain(|device| {
        let first = seen.insert(device.id.clone());
        if !first {
            let nodes: Vec<_> = device
                .nodes
                .iter()
                .map(|n| n.host.display().to_string())
                .collect();
            let nodes = nodes.join(", ");
            warnings.push(format!(
                "the id {} is there twice; left out: {nodes}",
                device.id
            ));
        }
        first
    });
}
