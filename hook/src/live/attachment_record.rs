//! The record of one container: what was changed in it while it ran, and what of its start is
//! followed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::slice;

use device_class::device::DeviceRule;
use injection_plan::plan::{GivenBy, InjectionStep, SpecRule, device_key};
use oci_spec::runtime::LinuxDeviceCgroup;
use serde::{Deserialize, Serialize};

use super::created_file::CreatedFile;
use super::follow::Announcement;
use super::recorded_rule::{RecordedRule, rules_of_steps};
use crate::oci::{Attached, CdiGrant};

/// What was changed in one container.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct AttachmentRecord {
    pub(crate) id: String,
    /// Its first process, and when that was started: a container with the same id that was
    /// started later has nothing of it.
    pub(crate) pid: i32,
    pub(crate) started: u64,
    pub(crate) bundle: PathBuf,
    /// Whether that is the init process of a PID namespace: then no process of the container
    /// goes on after it.
    #[serde(default)]
    pub(crate) is_init: bool,
    /// The path of its cgroup before its processes could move deeper.
    #[serde(default)]
    pub(crate) cgroup: PathBuf,
    /// The inode number of that cgroup's directory; 0 if the container has no cgroup of its own,
    /// or the record is one of an older version.
    #[serde(default)]
    pub(crate) cgroup_inode: u64,
    /// The device rules of its specification; `None` in a record of an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) spec: Option<Vec<LinuxDeviceCgroup>>,
    pub(crate) devices: Vec<AttachedDevice>,
    /// The device rules that the container did not have.
    pub(crate) rules: Vec<RecordedRule>,
    pub(crate) made: Vec<CreatedFile>,
    /// Whether it has all device rules that the hook gave at the container's start and that its
    /// specification does not have.
    #[serde(default)]
    pub(crate) whole: bool,
    /// Whether the hook gave it nothing at its start.
    #[serde(default)]
    pub(crate) was_given_nothing: bool,
    /// AttachedDevice rules of the specification that were taken away.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) withdrawn: Vec<RecordedRule>,
    /// By class and device: what its programs were told to have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) told: BTreeMap<String, BTreeSet<Announcement>>,
}

/// A device that was attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AttachedDevice {
    pub(crate) class: String,
    pub(crate) device: String,
    /// One that the hook gave is only followed.
    pub(crate) asked: GivenBy,
    pub(crate) forced: bool,
}

impl AttachedDevice {
    /// What tells it from others.
    pub(crate) fn key(&self) -> String {
        device_key(&self.class, &self.device)
    }

    /// Whether it or its class is one of those that something is for.
    pub(super) fn is_among(&self, users: &[String]) -> bool {
        users.contains(&self.class) || users.contains(&self.key())
    }
}

impl AttachmentRecord {
    /// What a user attached, for a plan.
    pub(crate) fn attached(&self) -> Vec<Attached> {
        Self::grants(self.devices.iter().filter(|device| device.asked.is_user()))
    }

    /// Devices as grants, for a plan.
    pub(crate) fn grants<'d>(devices: impl Iterator<Item = &'d AttachedDevice>) -> Vec<Attached> {
        let grants = devices.filter_map(|device| {
            Some(Attached {
                grant: CdiGrant {
                    class: device.class.clone().try_into().ok()?,
                    device: written_id(&device.device),
                    claim: None,
                },
                forced: device.forced,
            })
        });
        grants.collect()
    }

    /// Adds what is not there yet. What is, is for more devices now.
    pub(crate) fn add(
        &mut self,
        devices: Vec<AttachedDevice>,
        rules: Vec<RecordedRule>,
        made: Vec<CreatedFile>,
    ) {
        for device in devices {
            let same = |known: &AttachedDevice| {
                known.class == device.class && known.device == device.device
            };
            if !self.devices.iter().any(same) {
                self.devices.push(device);
            }
        }
        for rule in rules {
            self.withdrawn
                .retain(|withdrawn| withdrawn.rule != rule.rule);
            match self.rules.iter_mut().find(|known| known.rule == rule.rule) {
                Some(known) => {
                    merge(&mut known.why, rule.why);
                    known.host = rule.host.or(known.host.take());
                }
                None => self.rules.push(rule),
            }
        }
        for made in made {
            let same = |known: &&mut CreatedFile| known.is_same(&made);
            match self.made.iter_mut().find(same) {
                Some(known) => merge(&mut known.why, made.why),
                None => self.made.push(made),
            }
        }
    }

    /// Removes rules that were revoked, and notes those that the specification has.
    pub(crate) fn withdraw(&mut self, revoked: &[RecordedRule]) {
        self.rules.retain(|rule| !revoked.contains(rule));
        let named = revoked.iter().filter(|revoked| {
            let rule = DeviceRule::parse(&revoked.rule);
            rule.is_some_and(|rule| self.spec_names(&rule) && !self.withdrawn.contains(revoked))
        });
        let named: Vec<RecordedRule> = named.cloned().collect();
        self.withdrawn.extend(named);
    }

    /// Whether the specification has a rule that allows the device alone. One that is not
    /// recorded may have any.
    fn spec_names(&self, rule: &DeviceRule) -> bool {
        let wanted = SpecRule::from(rule);
        self.spec_rules().is_none_or(|spec| {
            spec.iter().any(|known| {
                (known.allow, known.kind) == (true, wanted.kind)
                    && (known.major, known.minor) == (wanted.major, wanted.minor)
            })
        })
    }

    /// The device rules of the specification, if they are recorded.
    pub(super) fn spec_rules(&self) -> Option<Vec<SpecRule>> {
        self.spec.as_deref().map(crate::oci::device_rules)
    }

    /// Takes devices out, with what was only for them, which is returned as a record.
    pub(crate) fn take(&mut self, is_taken: impl Fn(&AttachedDevice) -> bool) -> AttachmentRecord {
        let (taken, left) = self.devices.drain(..).partition(is_taken);
        self.devices = left;
        let devices = &self.devices;
        let has = |key: &String| devices.iter().any(|device| device.key() == *key);
        self.told.retain(|key, _| has(key));
        let is_used =
            |why: &Vec<String>| why.is_empty() || devices.iter().any(|it| it.is_among(why));
        let (rules, others) = self.rules.drain(..).partition(|rule| !is_used(&rule.why));
        self.rules = others;
        let (made, others) = self.made.drain(..).partition(|made| !is_used(&made.why));
        self.made = others;
        AttachmentRecord {
            devices: taken,
            rules,
            made,
            ..self.identity()
        }
    }

    /// Adds the devices that need what is recorded already for another device: of two devices
    /// that need the same, the container lacked it only for the first. A device that needs less
    /// access than the recorded rule gets a rule of its own, which stays when the other goes.
    pub(crate) fn share(&mut self, steps: &[InjectionStep]) {
        let devices = self.devices.clone();
        let users_in = |users: &[String]| -> Vec<String> {
            let has_device =
                |user: &&String| devices.iter().any(|it| it.is_among(slice::from_ref(*user)));
            users.iter().filter(has_device).cloned().collect()
        };
        for rule in rules_of_steps(steps) {
            let users = users_in(&rule.why);
            if !users.is_empty() {
                self.share_rule(&rule, users);
            }
        }
        for step in steps {
            let users = users_in(&step.users);
            if users.is_empty() {
                continue;
            }
            for made in self.made.iter_mut().filter(|made| made.is_of(step)) {
                merge(&mut made.why, users.clone());
            }
        }
    }

    fn share_rule(&mut self, rule: &RecordedRule, users: Vec<String>) {
        let Some(needed) = DeviceRule::parse(&rule.rule) else {
            return;
        };
        let mut wider = None;
        for known in &mut self.rules {
            let Some(parsed) = DeviceRule::parse(&known.rule) else {
                continue;
            };
            if parsed.number != needed.number {
                continue;
            }
            if needed.access.contains(parsed.access) {
                merge(&mut known.why, users.clone());
            } else if known.why.is_empty() {
                // The wider rule stays, whatever becomes of the devices.
                return;
            } else if parsed.access.contains(needed.access) {
                wider = Some(known.clone());
            }
        }
        let is_known = self.rules.iter().any(|known| known.rule == rule.rule);
        if let Some(wider) = wider.filter(|_| !is_known) {
            self.rules.push(RecordedRule {
                rule: rule.rule.clone(),
                why: users,
                ..wider
            });
        }
    }

    /// A record of the same container with nothing in it.
    pub(crate) fn identity(&self) -> AttachmentRecord {
        AttachmentRecord {
            devices: Vec::new(),
            rules: Vec::new(),
            made: Vec::new(),
            whole: false,
            withdrawn: Vec::new(),
            told: BTreeMap::new(),
            ..self.clone()
        }
    }

    /// Whether it is of the same start of the same container.
    pub(super) fn is_of_same_start(&self, other: &AttachmentRecord) -> bool {
        (self.pid, self.started) == (other.pid, other.started)
    }

    /// The record with what one of an older version lacks.
    pub(super) fn with_missing(mut self, new: AttachmentRecord) -> AttachmentRecord {
        if self.spec.is_none() {
            self.spec = new.spec;
            self.is_init = new.is_init;
        }
        if self.cgroup_inode == 0 && self.cgroup == new.cgroup {
            self.cgroup_inode = new.cgroup_inode;
        }
        self
    }

    /// Whether there is a reason to keep it.
    pub(super) fn has_content(&self) -> bool {
        let has_devices = !self.devices.is_empty() || !self.rules.is_empty();
        has_devices || !self.made.is_empty() || self.whole
    }
}

/// An id as a request has to write it. One that looks like an index must not mean another device
/// once its own is unplugged.
fn written_id(id: &str) -> String {
    match id.chars().all(|c| c.is_ascii_digit() || c == '-') {
        true => format!("\"{id}\""),
        false => id.to_owned(),
    }
}

/// What is for something that stays does so, whatever else it is for.
fn merge(known: &mut Vec<String>, more: Vec<String>) {
    if known.is_empty() || more.is_empty() {
        return known.clear();
    }
    for why in more {
        if !known.contains(&why) {
            known.push(why);
        }
    }
}

#[cfg(test)]
mod tests {
    use injection_plan::plan::Action;

    use super::*;

    #[test]
    fn a_rule_that_stays_is_not_taken_with_a_device() {
        let device = AttachedDevice {
            class: "chips".to_owned(),
            device: "chip-0".to_owned(),
            asked: GivenBy::from("chips=0".to_owned()),
            forced: false,
        };
        let rule = |why: &[&str]| RecordedRule {
            rule: "c 10:183 rw".to_owned(),
            why: why.iter().map(ToString::to_string).collect(),
            host: None,
            beside_spec: false,
        };
        let chip = "chips chip-0";
        for [first, second] in [[vec![], vec![chip]], [vec![chip], vec![]]] {
            let mut record = AttachmentRecord::default();
            record.add(vec![device.clone()], vec![rule(&first)], Vec::new());
            record.add(Vec::new(), vec![rule(&second)], Vec::new());
            assert_eq!(record.take(|_| true).rules, []);
            assert_eq!(record.rules, [rule(&[])]);
        }
    }

    #[test]
    fn a_rule_that_another_device_needs_stays_recorded() {
        let device = |id: &str| AttachedDevice {
            class: "chips".to_owned(),
            device: id.to_owned(),
            asked: GivenBy::from(id.to_owned()),
            forced: false,
        };
        let rule = DeviceRule::parse("c 10:183 rw").unwrap();
        let allow = |why: &str| InjectionStep {
            action: Action::Allow {
                rule,
                in_spec: false,
                users_by_access: [].into(),
            },
            why: why.to_owned(),
            users: vec![device_key("chips", why)],
        };
        let mut record = AttachmentRecord::default();
        let first = rules_of_steps(&[allow("chip-0")]).collect();
        record.add(vec![device("chip-0"), device("chip-1")], first, Vec::new());
        record.share(&[allow("chip-0"), allow("chip-1"), allow("chip-2")]);
        let taken = record.take(|device| device.device == "chip-0");
        assert_eq!(taken.rules, []);
        let taken = record.take(|_| true);
        assert_eq!((taken.rules.len(), record.rules.len()), (1, 0));
    }
}
