//! What the host has of the classes that are followed: looked up once for all containers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use device_class::config::Config;
use device_class::device::DeviceRule;
use device_class::discover::{self, FoundNode, Presence};
use device_class::host::RealHost;
use device_class::load::{self, ClassSource};

use super::announcement::Announcement;
use crate::live::attachment_record::{AttachedDevice, AttachmentRecord};
use crate::live::recorded_rule::RecordedRule;
use crate::log;
use crate::planner::{self, LookedUp};

/// A device of a container, and its nodes as text; `None` if the host has it no more.
pub(super) type Followed<'d> = (&'d AttachedDevice, Option<String>);

/// The classes of some containers, by name.
#[derive(Default)]
pub(super) struct HostSnapshot {
    followed: BTreeMap<String, LookedUp>,
    /// Of those with `announce`: what is to be said of each device, by class and id.
    told: BTreeMap<String, BTreeMap<String, Vec<Announcement>>>,
    /// Classes that are not followed.
    unfollowed: BTreeSet<String>,
    /// Why others cannot be used: what containers have of them stays as it is.
    pub(super) unusable: BTreeMap<String, String>,
}

impl HostSnapshot {
    pub(super) fn of(records: &[AttachmentRecord], config: &Config) -> Self {
        let devices = records.iter().flat_map(|record| &record.devices);
        let names: BTreeSet<&str> = devices.map(|device| &*device.class).collect();
        let mut sight = HostSnapshot::default();
        if let Err(reason) = sight.look(&names, config) {
            let all = names
                .iter()
                .map(|name| ((*name).to_owned(), reason.clone()));
            sight.unusable.extend(all);
        }
        sight
    }

    fn look(&mut self, names: &BTreeSet<&str>, config: &Config) -> Result<(), String> {
        let host = planner::open_host(config).map_err(|error| log::chain(&error))?;
        let sources = load::each_source(&config.classes).map_err(|error| log::chain(&error))?;
        for source in sources {
            let name = match &source {
                Ok(source) => source.name.as_str(),
                Err(error) => {
                    let stem = error.path().file_stem().and_then(|stem| stem.to_str());
                    stem.unwrap_or_default()
                }
            };
            if !names.contains(name) {
                continue;
            }
            let name = name.to_owned();
            let source = source.map_err(|error| log::chain(&error));
            match source.and_then(|source| look_up(&source, &host, config)) {
                Ok(Some(class)) => {
                    if class.class.spec.announce {
                        self.told.insert(name.clone(), told(&class, &host));
                    }
                    self.followed.insert(name, class);
                }
                Ok(None) => drop(self.unfollowed.insert(name)),
                Err(reason) => {
                    self.unusable.insert(name, reason);
                }
            }
        }
        Ok(())
    }

    pub(super) fn classes(&self) -> impl Iterator<Item = &LookedUp> {
        self.followed.values()
    }

    /// The followed devices of a container.
    pub(super) fn followed<'d>(&self, record: &'d AttachmentRecord) -> Vec<Followed<'d>> {
        let devices = record.devices.iter();
        let followed = devices.filter_map(|device| {
            let class = self.followed.get(&*device.class)?;
            Some((device, nodes(class, device)))
        });
        followed.collect()
    }

    pub(super) fn is_unfollowed(&self, device: &AttachedDevice) -> bool {
        self.is_unfollowed_class(&device.class)
    }

    pub(super) fn is_unfollowed_class(&self, class: &str) -> bool {
        self.unfollowed.contains(class)
    }

    /// The followed classes of a container's devices.
    pub(super) fn followed_classes<'s>(&'s self, record: &AttachmentRecord) -> BTreeSet<&'s str> {
        let devices = record.devices.iter();
        let classes = devices.filter_map(|device| self.followed.get_key_value(&*device.class));
        classes.map(|(name, _)| name.as_str()).collect()
    }

    /// Returns the nodes, as text, that the classes of a container's devices have for all their
    /// devices together.
    pub(super) fn class_nodes(&self, record: &AttachmentRecord) -> String {
        let classes = self.followed_classes(record).into_iter();
        let nodes = classes.filter_map(|class| nodes_text(&self.followed[class].found.edits.nodes));
        nodes.collect::<Vec<_>>().join(" ")
    }

    /// Whether the host has a device; `None` if its class is not there or cannot be used.
    pub(super) fn has(&self, device: &AttachedDevice) -> Option<bool> {
        if self.unfollowed.contains(&device.class) {
            return Some(true);
        }
        let class = self.followed.get(&device.class)?;
        Some(nodes(class, device).is_some())
    }

    /// Whether a rule for a device is for a number that it had before.
    pub(super) fn has_other_number(
        &self,
        device: &AttachedDevice,
        rule: &RecordedRule,
        root: &Path,
    ) -> bool {
        let Some(class) = self.followed.get(&device.class) else {
            return false;
        };
        let devices = class.found.inventory.devices.iter();
        let own = devices.filter(|found| found.id.as_str() == device.device);
        let own = own.flat_map(|found| &found.nodes);
        let mut nodes = own.chain(&class.found.edits.nodes);
        let number = DeviceRule::parse(&rule.rule).map(|rule| rule.number);
        let is_its = |node: &FoundNode| match node.number {
            Presence::Found(found) => Some(found) == number,
            _ => false,
        };
        // A node for a capability is none of those, and is the host's as before.
        !nodes.any(is_its) && rule.host.as_ref().is_some_and(|host| host.is_gone(root))
    }

    /// What is to be said of a device, of which nothing may be there; `None`: its containers
    /// are not told.
    pub(super) fn told(&self, device: &AttachedDevice) -> Option<&[Announcement]> {
        let of_class = self.told.get(&device.class)?;
        Some(of_class.get(&device.device).map_or(&[], Vec::as_slice))
    }
}

/// `None`: it is not followed.
fn look_up(
    source: &ClassSource,
    host: &RealHost,
    config: &Config,
) -> Result<Option<LookedUp>, String> {
    let class = config.class(source).map_err(|error| log::chain(&error))?;
    if !class.spec.follow {
        return Ok(None);
    }
    let found = discover::look_up_nodes(&class, host);
    let found = found.map_err(|error| log::chain(&error))?;
    Ok(Some(LookedUp { class, found }))
}

fn told(class: &LookedUp, host: &RealHost) -> BTreeMap<String, Vec<Announcement>> {
    let devices = class.found.inventory.devices.iter();
    let told = devices.map(|device| {
        let nodes = device.nodes.iter();
        let told = nodes.filter_map(|node| Announcement::of(node, host));
        (device.id.to_string(), told.collect())
    });
    told.collect()
}

fn nodes(class: &LookedUp, device: &AttachedDevice) -> Option<String> {
    let mut devices = class.found.inventory.devices.iter();
    let found = devices.find(|found| found.id.as_str() == device.device)?;
    nodes_text(&found.nodes)
}

/// The nodes that the host has; `None` if it has none of them.
fn nodes_text(nodes: &[FoundNode]) -> Option<String> {
    let nodes = nodes.iter().filter_map(|node| match node.number {
        Presence::Found(number) => Some(format!(
            "{} {number} {:?}",
            node.container.display(),
            node.links
        )),
        _ => None,
    });
    let nodes: Vec<String> = nodes.collect();
    (!nodes.is_empty()).then(|| nodes.join(" "))
}
