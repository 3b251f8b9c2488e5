//! What the host has of the classes that are followed: looked up once for all containers.

use std::collections::{BTreeMap, BTreeSet};

use device_class::config::Config;
use device_class::discover::{self, Presence};
use device_class::load;

use super::super::record::{Device, Record};
use crate::planner::{self, LookedUp};

/// A device of a container, and its nodes as text; `None` if the host has it no more.
pub(super) type Followed<'d> = (&'d Device, Option<String>);

/// The followed classes of some containers, by name. One that cannot be used is left out.
#[derive(Default)]
pub(super) struct Sight(BTreeMap<String, LookedUp>);

impl Sight {
    pub(super) fn of(records: &[Record], config: &Config) -> Self {
        let devices = records.iter().flat_map(|record| &record.devices);
        let names: BTreeSet<&str> = devices.map(|device| &*device.class).collect();
        let mut sight = Sight::default();
        let (Ok(host), Ok(sources)) = (
            planner::open_host(config),
            load::each_source(&config.classes),
        ) else {
            return sight;
        };
        for source in sources.into_iter().flatten() {
            let name = source.name.as_str();
            if names.contains(name)
                && let Ok(class) = config.class(&source)
                && class.spec.follow
                && let Ok(found) = discover::look_up_nodes(&class, &host)
            {
                sight.0.insert(name.to_owned(), LookedUp { class, found });
            }
        }
        sight
    }

    pub(super) fn classes(&self) -> impl Iterator<Item = &LookedUp> {
        self.0.values()
    }

    /// The followed devices of a container.
    pub(super) fn followed<'d>(&self, record: &'d Record) -> Vec<Followed<'d>> {
        let devices = record.devices.iter();
        let followed = devices.filter_map(|device| {
            let class = self.0.get(&*device.class)?;
            Some((device, nodes(class, device)))
        });
        followed.collect()
    }
}

fn nodes(class: &LookedUp, device: &Device) -> Option<String> {
    let mut devices = class.found.inventory.devices.iter();
    let found = devices.find(|found| found.id.as_str() == device.device)?;
    let nodes = found.nodes.iter().filter_map(|node| match node.number {
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
