//! What was changed in containers that run: a file for each below `/run/boathook`, by which
//! `detach`, `doctor` and `explain` know it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use device_class::device::DeviceRule;
use injection_plan::plan::{GivenBy, InjectionStep, SpecDevices, device_key};
use serde::{Deserialize, Serialize};

use super::follow::Told;
use super::lock::ContainerLock;
use super::made::Made;
use super::rule::{Rule, rules_of_steps};
use crate::log;
use crate::oci::{Attached, Bundle, CdiGrant, capped, open_regular};

/// The directory in that of the log.
const NAME: &str = "attached";

/// The largest record that is read, in bytes.
const MAX: usize = 4 << 20;

/// What was changed in one container.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) id: String,
    /// Its first process, and when that was started: a container with the same id that was
    /// started later has nothing of it.
    pub(crate) pid: i32,
    pub(crate) started: u64,
    pub(crate) bundle: PathBuf,
    /// The path of its cgroup before its processes could move deeper.
    #[serde(default)]
    pub(crate) cgroup: PathBuf,
    pub(crate) devices: Vec<Device>,
    /// The device rules that the container did not have.
    pub(crate) rules: Vec<Rule>,
    pub(crate) made: Vec<Made>,
    /// Whether it has all device rules that the hook gave at the container's start and that its
    /// specification does not have.
    #[serde(default)]
    pub(crate) whole: bool,
    /// Device rules of the specification that were taken away.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) withdrawn: Vec<Rule>,
    /// By class and device: what its programs were told to have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) told: BTreeMap<String, BTreeSet<Told>>,
}

/// A device that was attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Device {
    pub(crate) class: String,
    pub(crate) device: String,
    /// One that the hook gave is only followed.
    pub(crate) asked: GivenBy,
    pub(crate) forced: bool,
}

impl Device {
    /// What tells it from others.
    pub(crate) fn key(&self) -> String {
        device_key(&self.class, &self.device)
    }

    /// Whether it or its class is one of those that something is for.
    pub(super) fn is_among(&self, users: &[String]) -> bool {
        users.contains(&self.class) || users.contains(&self.key())
    }
}

impl Record {
    /// What a user attached, for a plan.
    pub(crate) fn attached(&self) -> Vec<Attached> {
        Self::grants(self.devices.iter().filter(|device| device.asked.is_user()))
    }

    /// Devices as grants, for a plan.
    pub(crate) fn grants<'d>(devices: impl Iterator<Item = &'d Device>) -> Vec<Attached> {
        let grants = devices.filter_map(|device| {
            Some(Attached {
                grant: CdiGrant {
                    class: device.class.clone().try_into().ok()?,
                    device: device.device.clone(),
                    claim: None,
                },
                forced: device.forced,
            })
        });
        grants.collect()
    }

    /// Adds what is not there yet. What is, is for more devices now.
    pub(crate) fn add(&mut self, devices: Vec<Device>, rules: Vec<Rule>, made: Vec<Made>) {
        for device in devices {
            let same =
                |known: &Device| known.class == device.class && known.device == device.device;
            if !self.devices.iter().any(same) {
                self.devices.push(device);
            }
        }
        for rule in rules {
            self.withdrawn
                .retain(|withdrawn| withdrawn.rule != rule.rule);
            match self.rules.iter_mut().find(|known| known.rule == rule.rule) {
                Some(known) => merge(&mut known.why, rule.why),
                None => self.rules.push(rule),
            }
        }
        for made in made {
            let same = |known: &&mut Made| known.is_same(&made);
            match self.made.iter_mut().find(same) {
                Some(known) => merge(&mut known.why, made.why),
                None => self.made.push(made),
            }
        }
    }

    /// Takes rules out, also those that the specification has.
    pub(crate) fn withdraw(&mut self, stale: &[Rule], spec: &SpecDevices) {
        self.rules.retain(|rule| !stale.contains(rule));
        let named = stale.iter().filter(|stale| {
            let rule = DeviceRule::parse(&stale.rule);
            rule.is_some_and(|rule| spec.names(rule.number))
        });
        self.withdrawn.extend(named.cloned());
    }

    /// Takes devices out, with what was only for them, which is returned as a record.
    pub(crate) fn take(&mut self, is_taken: impl Fn(&Device) -> bool) -> Record {
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
        Record {
            devices: taken,
            rules,
            made,
            ..self.identity()
        }
    }

    /// Takes back from `taken` what devices that stay attached use, too: of two that need
    /// the same, only the first was recorded to have made it.
    pub(crate) fn keep(&mut self, taken: &mut Record, steps: &[InjectionStep]) {
        let devices = self.devices.clone();
        let is_attached = |users: &[String]| devices.iter().any(|it| it.is_among(users));
        let of_attached = |step: &&InjectionStep| is_attached(&step.users);
        let used: Vec<_> = steps.iter().filter(of_attached).collect();
        let (kept, gone) = taken
            .made
            .drain(..)
            .partition(|made| used.iter().any(|step| made.is_of(step)));
        taken.made = gone;
        self.made.extend::<Vec<Made>>(kept);
        for rule in rules_of_steps(steps) {
            if !is_attached(&rule.why) {
                continue;
            }
            let mut rules = taken.rules.iter();
            if let Some(at) = rules.position(|taken| taken.rule == rule.rule) {
                taken.rules.swap_remove(at);
                self.rules.push(rule);
            }
        }
    }

    /// A record of the same container with nothing in it.
    pub(crate) fn identity(&self) -> Record {
        Record {
            id: self.id.clone(),
            pid: self.pid,
            started: self.started,
            bundle: self.bundle.clone(),
            cgroup: self.cgroup.clone(),
            ..Record::default()
        }
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

/// The directory of records, and the lock of one container's.
pub(crate) struct Records {
    directory: PathBuf,
    id: String,
    lock: ContainerLock,
}

impl Records {
    /// Those of the host whose root is at `root`, to change the container `id`.
    pub(crate) fn open(root: &Path, id: &str, patience: Duration) -> io::Result<Self> {
        let directory = directory(root)?;
        check_name(id)?;
        Ok(Records {
            lock: ContainerLock::take(&directory, id, patience)?,
            directory,
            id: id.to_owned(),
        })
    }

    /// The record of a container that runs; without one, or with one of an earlier run, an
    /// empty one.
    pub(crate) fn load(&self, container: Record) -> Record {
        let known = read(&self.directory.join(&container.id));
        let same =
            |known: &Record| (known.pid, known.started) == (container.pid, container.started);
        known.filter(same).unwrap_or(container)
    }

    /// Writes a record, or removes that of a container that has nothing more.
    pub(crate) fn save(&self, record: &Record) -> io::Result<()> {
        let path = self.directory.join(&record.id);
        let has_any = !record.devices.is_empty() || !record.rules.is_empty();
        if !has_any && record.made.is_empty() && !record.whole {
            return match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        write(&self.directory, record)
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        if !self.directory.join(&self.id).exists() {
            self.lock.remove_file();
        }
    }
}

/// Removes the records of containers that have ended.
pub(crate) fn prune(root: &Path) {
    for directory in log::directories(root).iter().map(|it| it.join(NAME)) {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let ended = || read(&entry.path()).filter(|record| !super::runs(record));
            // A container with the same id may have been started meanwhile.
            if let Some(record) = ended()
                && let Ok(Some(lock)) = ContainerLock::try_take(&directory, &record.id)
                && ended().is_some()
            {
                let _ = fs::remove_file(unfinished(&directory, &record.id));
                let _ = fs::remove_file(entry.path());
                lock.remove_file();
            }
        }
    }
}

/// Runtimes allow letters, digits and `_+-.` in an id, which is a file's name here.
fn check_name(id: &str) -> io::Result<()> {
    match id.is_empty() || id.starts_with('.') || id.contains('/') {
        true => Err(io::ErrorKind::InvalidFilename.into()),
        false => Ok(()),
    }
}

fn write(directory: &Path, record: &Record) -> io::Result<()> {
    check_name(&record.id)?;
    let new = unfinished(directory, &record.id);
    fs::write(&new, serde_json::to_string(record)?)?;
    fs::rename(new, directory.join(&record.id))
}

/// A record until it is complete; a process that was killed leaves it.
fn unfinished(directory: &Path, id: &str) -> PathBuf {
    directory.join(format!(".{id}.new"))
}

/// The directory of records, made if it is missing.
pub(super) fn directory(root: &Path) -> io::Result<PathBuf> {
    let mut failed = io::Error::from(io::ErrorKind::NotFound);
    for parent in log::directories(root) {
        let directory = parent.join(NAME);
        match log::own_directory(&parent).and_then(|()| log::own_directory(&directory)) {
            Ok(()) => return Ok(directory),
            Err(error) => {
                let path = directory.display();
                failed = io::Error::new(error.kind(), format!("{path}: {error}"));
            }
        }
    }
    Err(failed)
}

/// All records, of containers that still run.
pub(crate) fn all(root: &Path) -> Vec<Record> {
    let directories = log::directories(root).into_iter();
    let entries = directories.flat_map(|it| fs::read_dir(it.join(NAME)).into_iter().flatten());
    let records = entries.flatten().filter_map(|entry| read(&entry.path()));
    records.filter(super::runs).collect()
}

/// Adds to a container's configuration what is attached to it.
pub(crate) fn add_attached(bundle: &mut Bundle, directory: &Path, root: &Path) {
    let records = all(root).into_iter();
    let mut its = records.filter(|record| record.bundle == directory);
    bundle.attached = its.next().map(|it| it.attached()).unwrap_or_default();
}

fn read(path: &Path) -> Option<Record> {
    let name = path.file_name()?.to_str()?;
    let bytes = capped(open_regular(path).ok()?, MAX).ok()??;
    let record: Record = serde_json::from_slice(&bytes).ok()?;
    (record.id == name && !name.starts_with('.')).then_some(record)
}

#[cfg(test)]
mod tests {
    use injection_plan::plan::Action;

    use super::*;

    #[test]
    fn a_rule_that_stays_is_not_taken_with_a_device() {
        let device = Device {
            class: "chips".to_owned(),
            device: "chip-0".to_owned(),
            asked: GivenBy::from("chips=0".to_owned()),
            forced: false,
        };
        let rule = |why: &[&str]| Rule {
            rule: "c 10:183 rw".to_owned(),
            why: why.iter().map(ToString::to_string).collect(),
        };
        let chip = "chips chip-0";
        for [first, second] in [[vec![], vec![chip]], [vec![chip], vec![]]] {
            let mut record = Record::default();
            record.add(vec![device.clone()], vec![rule(&first)], Vec::new());
            record.add(Vec::new(), vec![rule(&second)], Vec::new());
            assert_eq!(record.take(|_| true).rules, []);
            assert_eq!(record.rules, [rule(&[])]);
        }
    }

    /// Of two that need the same only the first was recorded to have it allowed.
    #[test]
    fn a_rule_that_another_device_needs_stays_recorded() {
        let device = |id: &str| Device {
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
            },
            why: why.to_owned(),
            users: vec![device_key("chips", why)],
        };
        let mut record = Record::default();
        let first = rules_of_steps(&[allow("chip-0")]).collect();
        record.add(vec![device("chip-0"), device("chip-1")], first, Vec::new());
        let mut taken = record.take(|device| device.device == "chip-0");
        record.keep(&mut taken, &[allow("chip-1")]);
        assert_eq!(taken.rules, []);
        let mut taken = record.take(|_| true);
        record.keep(&mut taken, &[]);
        assert_eq!((taken.rules.len(), record.rules.len()), (1, 0));
    }
}
