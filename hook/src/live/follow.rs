//! Following: a device that comes back with another number replaces the old one in each
//! container that has it, and one that is unplugged goes.
//!
//! What a container has is known by its record, and what the host has by looking: so it does
//! not matter what happened while nobody looked.

use std::collections::BTreeMap;
use std::time::Instant;

use device_class::config::Config;
use device_class::discover::{self, Inventory, Presence};
use device_class::load;
use injection_plan::plan::Action;
use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use super::attach::{Change, rules_of_steps};
use super::detach::rules;
use super::record::{self, Device, Record};
use super::{Found, LiveError, Running};
use crate::apply;
use crate::log;
use crate::planner::{self, Caller};
use crate::sys;
use crate::sys::deadline::{self, Deadline};
use crate::sys::process::Child;

/// So many seconds a container is left alone that could not be changed.
const PAUSE: u32 = 10;

/// So many containers are changed at once.
const MOST_AT_ONCE: usize = 8;

/// What was seen before.
pub(crate) struct Follower<'c> {
    config: &'c Config,
    began: Instant,
    seen: Seen,
}

#[derive(Clone, Default, Serialize, Deserialize)]
struct Seen {
    /// By container: its devices when it was last looked at.
    devices: BTreeMap<String, String>,
    /// By container: when it could not be changed, in seconds since this began, and why.
    failed: BTreeMap<String, (u64, String)>,
}

impl<'c> Follower<'c> {
    pub(crate) fn new(config: &'c Config) -> Self {
        Follower {
            config,
            began: Instant::now(),
            seen: Seen::default(),
        }
    }

    /// Looks at the host, and changes the containers whose devices are others than before. A
    /// child does, so that this process stays as small as it was. Returns after how many
    /// seconds to look again if nothing happens until then.
    pub(crate) fn look(&mut self) -> Option<u32> {
        if self.seen.devices.is_empty() && record::all(&self.config.host_root).is_empty() {
            return None;
        }
        let answer = sys::process::in_child(|| {
            self.look_here();
            serde_json::to_string(&self.seen).unwrap_or_default()
        });
        if let Ok(Some(text)) = answer
            && let Ok(seen) = serde_json::from_str(&text)
        {
            self.seen = seen;
        }
        (!self.seen.failed.is_empty()).then_some(PAUSE)
    }

    fn look_here(&mut self) {
        let now = self.began.elapsed().as_secs();
        let records = record::all(&self.config.host_root);
        // Several at once, each in a child.
        let mut working: Vec<(&Record, String, Child)> = Vec::new();
        let mut inventories: BTreeMap<&str, Option<Inventory>> = BTreeMap::new();
        for record in &records {
            for device in &record.devices {
                if !inventories.contains_key(&*device.class) {
                    inventories.insert(&device.class, self.inventory(&device.class));
                }
            }
            let devices = record.devices.iter();
            let followed = devices.filter_map(|device| {
                let inventory = inventories.get(&*device.class)?.as_ref()?;
                Some((device, sight(inventory, device)))
            });
            let followed: Vec<(&Device, Option<String>)> = followed.collect();
            if followed.is_empty() {
                continue;
            }
            let devices = format!("{} {followed:?}", record.started);
            let failed = self.seen.failed.get(&record.id);
            if self.seen.devices.get(&record.id) == Some(&devices)
                || failed.is_some_and(|(at, _)| now.saturating_sub(*at) < PAUSE.into())
            {
                continue;
            }
            if working.len() == MOST_AT_ONCE {
                let (record, devices, child) = working.remove(0);
                self.end(record, devices, child.wait(), now);
            }
            let work = || match refresh(record, &followed, self.config) {
                Ok(()) | Err(LiveError::Ended) => String::new(),
                Err(error) => log::chain(&error),
            };
            match sys::process::start_child(work) {
                Ok(child) => working.push((record, devices, child)),
                Err(errno) => self.end(record, devices, Err(errno), now),
            }
        }
        for (record, devices, child) in working {
            self.end(record, devices, child.wait(), now);
        }
        let runs = |id: &String| records.iter().any(|record| record.id == *id);
        let mut seen = self.seen.devices.keys().chain(self.seen.failed.keys());
        if seen.any(|id| !runs(id)) {
            self.seen.devices.retain(|id, _| runs(id));
            self.seen.failed.retain(|id, _| runs(id));
            record::prune(&self.config.host_root);
        }
    }

    /// What the host has of a class; `None` if it is not followed.
    fn inventory(&self, name: &str) -> Option<Inventory> {
        let sources = load::each_source(&self.config.classes).ok()?;
        let mut sources = sources.into_iter().flatten();
        let source = sources.find(|source| source.name.as_str() == name)?;
        let class = self.config.class(&source).ok()?;
        let host = planner::open_host(self.config).ok()?;
        class.spec.follow.then(|| discover::devices(&class, &host))
    }

    /// What became of a container. One that keeps this waiting is left alone for a while.
    fn end(
        &mut self,
        record: &Record,
        devices: String,
        answer: Result<Option<String>, Errno>,
        now: u64,
    ) {
        let error = match answer {
            Ok(Some(error)) if error.is_empty() => {
                self.seen.devices.insert(record.id.clone(), devices);
                self.seen.failed.remove(&record.id);
                return;
            }
            Ok(Some(error)) => error,
            Ok(None) => LiveError::TooSlow.to_string(),
            Err(errno) => log::chain(&LiveError::Fork(errno)),
        };
        let before = self.seen.failed.get(&record.id);
        if before.is_none_or(|(_, before)| *before != error) {
            log::warning(&format!("container {}: {error}", record.id));
        }
        self.seen.failed.insert(record.id.clone(), (now, error));
    }
}

/// The nodes of a device; `None` if the host has it no more.
fn sight(inventory: &Inventory, device: &Device) -> Option<String> {
    let mut devices = inventory.devices.iter();
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

/// Changes a container such that it has the followed devices as the host has them.
fn refresh(
    record: &Record,
    followed: &[(&Device, Option<String>)],
    config: &Config,
) -> Result<(), LiveError> {
    let deadline = Deadline::start(deadline::SECONDS).map_err(LiveError::Fork)?;
    let found = Found {
        id: record.id.clone(),
        pid: record.pid,
        started: Some(record.started),
        bundle: record.bundle.clone(),
    };
    let mut running = Running::open(&found, config)?;
    // What the hook knows of the container's other rules is in the record.
    let mut keep = Vec::new();
    let is_followed = |why: &String| followed.iter().any(|(device, _)| device.device == *why);
    let mut here = running.record.identity();
    let present = followed.iter().filter(|(_, nodes)| nodes.is_some());
    here.devices = present.map(|(device, _)| (*device).clone()).collect();
    running.bundle.attached = Record::grants(here.devices.iter());
    let mut plan = planner::plan_for(&running.bundle, &Caller::Attach, config)?;
    plan.steps.retain(|step| {
        let is_theirs = step.why.split(", ").all(|why| is_followed(&why.to_owned()));
        let is_node = matches!(
            step.action,
            Action::Allow { in_spec: false, .. }
                | Action::Node { .. }
                | Action::MakeNode { .. }
                | Action::Link { .. }
        );
        is_theirs && is_node
    });
    let mut stale = running.record.identity();
    let wanted: Vec<_> = rules_of_steps(&plan.steps).collect();
    for rule in &running.record.rules {
        let is_wanted = wanted.iter().any(|wanted| wanted.rule == rule.rule);
        let is_theirs = !rule.why.is_empty() && rule.why.iter().all(is_followed);
        match is_theirs && !is_wanted {
            true => stale.rules.push(rule.clone()),
            false => keep.extend(rules(&Record {
                rules: vec![rule.clone()],
                ..Record::default()
            })),
        }
    }
    for made in &running.record.made {
        let is_wanted = plan.steps.iter().any(|step| made.is_of(step));
        if made.is_node_or_link() && made.why.iter().all(is_followed) && !is_wanted {
            stale.made.push(made.clone());
        }
    }
    let mut all = apply::rules_of(&plan);
    keep.extend(&all);
    running.keep_missing(&mut plan, &[], &stale)?;
    deadline.cancel();
    if plan.steps.is_empty() && stale.made.is_empty() && stale.rules.is_empty() {
        return Ok(());
    }
    all.extend(&keep);
    let change = Change {
        stale: &stale,
        keep: &keep,
        plan: &plan,
        all: &all,
        devices: Vec::new(),
    };
    for warning in running.change(change, config)? {
        log::warning(&format!("container {}: {warning}", record.id));
    }
    for (device, nodes) in followed {
        let (id, class) = (&device.device, &device.class);
        log::info(|| match nodes {
            Some(nodes) => format!("container {}: {id} of {class} is {nodes}", record.id),
            None => format!("container {}: {id} of {class} is gone", record.id),
        });
    }
    Ok(())
}
