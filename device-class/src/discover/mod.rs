//! What a host has of a class.

mod attributes;
mod device;
mod driver_root;
mod edits;
mod fact_commands;
mod facts_kept;
mod files;
mod found;
mod health;
mod health_command;
mod health_history;
mod hidden;
mod kernel_log;
mod lacking;
mod libraries;
mod links;
mod listed;
mod loaded_driver;
mod look_up;
mod mask;
mod names;
mod node_paths;
mod nodes;
mod order;
mod parts;
mod paths;
mod search;
mod sharing;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Instant;

pub use device::DeviceError;
pub use edits::{EditSelection, control_nodes};
pub use fact_commands::fact_commands;
pub use facts_kept::keep_earlier_facts;
pub use found::{
    FileSource, FoundCopy, FoundDirectory, FoundEdits, FoundFile, FoundLibrary, FoundMask,
    FoundNode, FoundShown, FoundText, ImageLibraries, MadeNode, NodeForm, OwnNode, Presence,
};
pub use health::{Health, OverTime, Reading, is_unhealthy_by_facts, list_byte_checks};
pub use health_command::HealthCommand;
pub use health_history::HealthHistory;
pub use kernel_log::KernelLine;
pub use lacking::{find_lacks, find_missing_nodes, find_unclaimed};
pub use links::Connections;
pub use look_up::{FoundClass, LookUpError, look_up, look_up_nodes, missing};
pub use names::{DeviceNames, NameKind};
pub use node_paths::{NamedByPath, as_path};
pub use parts::{Divisible, PossiblePart, Step, divisible};
pub use source::Refused;

use self::attributes::Files;
use crate::class::{DeviceClass, Source};
use crate::facts::Facts;
use crate::host::HostView;
use crate::name::{DeviceId, EnvName, ResourceName, excerpt};
use crate::pattern::PathPattern;
use crate::template::Attributes;

/// As many devices as one class may have on a host: a glob that matches more
/// is taken for a mistake. (What the class names beyond is left out, and reported.)
pub const MAX_DEVICES: usize = 4096;

#[derive(Debug, Clone, Default)]
pub struct Inventory {
    /// Sorted by index, as numbers where they are numbers, then by id.
    pub devices: Vec<Device>,
    /// Devices that are divided, and that a request may name nevertheless: it gets them
    /// without their parts. They are not offered.
    pub divided: Vec<Device>,
    /// Devices that are divided, and that no request may name.
    pub replaced: Vec<Device>,
    /// What was left out, and why: a line each.
    pub warnings: Vec<String>,
    /// What matched and is left out by `require`.
    pub refused: Refused,
    pub hidden: Vec<DeviceId>,
    /// The paths of a request, each with the devices that it names.
    pub paths: Vec<(PathBuf, NamedByPath)>,
    pub host_attributes: Attributes,
    /// Why nothing of the class can be on this host, if that is so: its driver is
    /// not loaded.
    pub no_driver: Option<String>,
}

impl Inventory {
    /// Makes the devices that are healthy unhealthy.
    pub fn refuse(&mut self, reason: &str) {
        self.refuse_some(reason, |_| true);
    }

    /// The same for devices that have their resource in common with devices that differ
    /// from them (`uniform` in `[device]`).
    pub fn refuse_mixed(&mut self, class: &DeviceClass) {
        let Some(uniform) = &class.spec.device.uniform else {
            return;
        };
        let mut kinds: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for device in &self.devices {
            let of_resource = kinds.entry(device.resource.to_string()).or_default();
            // The check of the class has every attribute of a template known.
            let kind = uniform.fill(&device.attributes).unwrap_or_default();
            if !kind.is_empty() {
                of_resource.insert(kind);
            }
        }
        for (resource, kinds) in kinds {
            if kinds.len() > 1 {
                let kinds: Vec<String> = kinds.into_iter().collect();
                let reason = format!(
                    "the devices of {resource} differ ({}), and a container could not choose: \
                     set `resource` in [class.{}] of config.toml so that it distinguishes them",
                    excerpt(&kinds.join(", ")),
                    class.name
                );
                self.refuse_some(&reason, |device| device.resource.as_str() == resource);
            }
        }
    }

    fn refuse_some(&mut self, reason: &str, is_refused: impl Fn(&Device) -> bool) {
        let devices = self.devices.iter_mut();
        for device in devices.filter(|one| one.health.is_healthy() && is_refused(one)) {
            let reason = reason.to_owned();
            device.health = Health::Unhealthy { reason };
        }
    }
}

#[derive(Debug, Clone)]
pub struct Device {
    /// Its id, the same at every discovery.
    pub id: DeviceId,
    /// The resource that it counts for.
    pub resource: ResourceName,
    /// The number that people use for it.
    pub index: Option<String>,
    /// The device that it is a part of, which is not offered in addition to it.
    pub part_of: Option<DeviceId>,
    /// Whether a request may still name that device.
    pub keeps_whole: bool,
    /// Other names that a request may use.
    pub aliases: Vec<String>,
    /// How many containers may have it at once, where the class shares its
    /// devices: each gets an id of [`Device::offered_ids`].
    pub replicas: Option<u16>,
    /// Whether it can be given to a container.
    pub health: Health,
    /// Why it can be used in parts only, which is a fault of the device as a whole.
    pub only_in_parts: Option<String>,
    /// What a [`HealthHistory`] compares with earlier scans.
    pub readings: Vec<Reading>,
    /// The NUMA node that it is on; `None` where the hardware reports none.
    pub numa: Option<u32>,
    /// Devices with the same group belong together.
    pub group: Option<String>,
    /// How it is connected with others.
    pub connections: Connections,
    /// Its nodes, with what the host has there now.
    pub nodes: Vec<FoundNode>,
    pub files: Vec<FoundFile>,
    pub directories: Vec<FoundDirectory>,
    /// What it shows of masked directories.
    pub shown: Vec<FoundShown>,
    /// The variables that a container gets with it.
    pub env: BTreeMap<EnvName, String>,
    /// The file that a preparation of the class would change.
    pub state: Option<StateFile>,
    pub attributes: Attributes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateFile {
    pub path: PathBuf,
    /// Its content; nothing when it cannot be read.
    pub content: Option<String>,
}

/// Finds the devices of a class. What cannot be read is left out with a
/// warning: hardware comes and goes during a scan.
pub fn devices(class: &DeviceClass, host: &dyn HostView) -> Inventory {
    let mut inventory = look(class, host);
    let divided = inventory.divided.iter_mut().chain(&mut inventory.replaced);
    let all = inventory.devices.iter_mut().chain(divided);
    HealthHistory::default().judge_with(all, Instant::now(), &[]);
    inventory
}

/// The same for those who look again and again: the devices' health is to be
/// judged by a [`HealthHistory`].
pub fn look(class: &DeviceClass, host: &dyn HostView) -> Inventory {
    look_with(class, host, None)
}

/// The same with these driver facts in place of those that the host has.
fn look_with(class: &DeviceClass, host: &dyn HostView, facts: Option<&Facts>) -> Inventory {
    let mut inventory = Inventory::default();
    let known = Attributes::new();
    if let Some(driver) = &class.spec.driver_path
        && !search::any(driver, &known, host)
    {
        inventory.no_driver = Some(format!("the host has no {driver}"));
        return inventory;
    }
    let facts = match facts {
        Some(facts) => facts.clone(),
        None => Facts::read(class, host, &mut inventory.warnings),
    };
    let files = &mut Files::new(host);
    match attributes::read(&class.spec.attributes, None, known, &facts, files) {
        Ok(attributes) => inventory.host_attributes = attributes,
        // No driver is loaded: nothing to warn of, and nothing to find.
        Err(unread @ attributes::Unread::Absent(_)) => {
            inventory.no_driver = Some(unread.to_string());
            return inventory;
        }
        Err(unread) => {
            inventory.warnings.push(unread.to_string());
            inventory.no_driver = Some(unread.to_string());
            return inventory;
        }
    }
    let mut in_vain = Vec::new();
    for source in &class.spec.discover {
        let before = (inventory.devices.len(), inventory.warnings.len());
        if before.0 == 0 || source.additional {
            find(class, source, &facts, host, &mut inventory);
        }
        // What kept one tree from having devices is of no interest when
        // another has them.
        if inventory.devices.len() == before.0 {
            in_vain.extend(inventory.warnings.drain(before.1..));
        }
    }
    if inventory.devices.is_empty() {
        inventory.warnings.extend(in_vain);
    }
    order::sort(&mut inventory.devices);
    if class.spec.device.index.is_none() {
        order::number(&mut inventory.devices);
    }
    order::leave_out_duplicates(&mut inventory);
    (inventory.divided, inventory.replaced) = order::take_divided(&mut inventory.devices);
    let settings = &class.settings;
    let all = [
        &inventory.devices[..],
        &inventory.divided,
        &inventory.replaced,
    ];
    let idle = hidden::without_device(settings, &all, host);
    inventory.warnings.extend(idle);
    let hidden = hidden::take_hidden(&mut inventory.devices, settings, host).into_iter();
    inventory.hidden = hidden.map(|device| device.id).collect();
    for divided in [&mut inventory.divided, &mut inventory.replaced] {
        hidden::take_hidden(divided, settings, host);
    }
    if let Some(sharing) = &class.spec.sharing {
        sharing::combine(sharing, &mut inventory);
    }
    inventory
}

/// Whether something on a host matches a pattern.
pub fn matches(pattern: &PathPattern, host: &dyn HostView) -> bool {
    search::any(pattern, &Attributes::new(), host)
}

fn find(
    class: &DeviceClass,
    source: &Source,
    facts: &Facts,
    host: &dyn HostView,
    inventory: &mut Inventory,
) {
    let known = &inventory.host_attributes;
    let (warnings, refused) = (&mut inventory.warnings, &mut inventory.refused);
    let candidates = source::candidates(source, known, facts, host, warnings, refused);
    for candidate in candidates {
        match device::from_candidate(class, source, &candidate, facts, host) {
            Ok(device) => inventory.devices.push(device),
            Err(problem) => inventory.warnings.push(format!("{candidate}: {problem}")),
        }
    }
}

impl Device {
    /// Whether parts of it, which are not made yet, would be healthy.
    pub fn is_healthy_in_parts(&self) -> bool {
        match &self.health {
            Health::Healthy => true,
            Health::Unhealthy { reason } => self.only_in_parts.as_ref() == Some(reason),
        }
    }

    /// The ids under which it is offered: its own, or one for each replica.
    pub fn offered_ids(&self) -> Vec<DeviceId> {
        match self.replicas {
            None => vec![self.id.clone()],
            Some(count) => (0..count).map(|number| self.id.replica(number)).collect(),
        }
    }

    /// Whether `id` is one of those under which it is offered.
    pub fn is_offered_as(&self, id: &DeviceId) -> bool {
        match self.replicas {
            None => self.id == *id,
            Some(_) => self.has_replica(id.as_str()),
        }
    }

    /// Whether `id` is that of one of its replicas.
    pub fn has_replica(&self, id: &str) -> bool {
        let number = id
            .strip_prefix(self.id.as_str())
            .and_then(|rest| rest.strip_prefix("::"))
            .and_then(|number| number.parse().ok());
        number.is_some_and(|number: u16| self.replicas.is_some_and(|count| number < count))
    }
}
