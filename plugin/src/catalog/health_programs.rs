//! Programs that report the health of a class's devices. They run one after another,
//! while the scans use the last result of each. Before the first result a device's
//! health is determined without it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use device_class::discover::{Device, Health, HealthCommand, OverTime};

use super::health_program::{Verdict, run};

/// A program and its arguments.
type Key = Vec<String>;

/// The programs of one class.
#[derive(Debug, Default)]
pub(super) struct HealthPrograms {
    verdicts: BTreeMap<Key, (Verdict, Instant)>,
    under_way: Option<JoinHandle<Vec<(Key, Verdict)>>>,
}

impl HealthPrograms {
    /// Sets the devices' health by the last results, and starts programs that are due.
    /// Returns which could not be run, a line each.
    pub(super) fn judge(
        &mut self,
        devices: &mut [Device],
        root: &Path,
        now: Instant,
    ) -> BTreeSet<String> {
        self.collect(now);
        let mut not_run = BTreeSet::new();
        let mut wanted = BTreeMap::new();
        for device in devices {
            for reading in &device.readings {
                let OverTime::Program(command) = &reading.rule else {
                    continue;
                };
                let key = key(command);
                match self.verdicts.get(&key) {
                    Some((Verdict::Unhealthy(reason), _)) if device.health.is_healthy() => {
                        let reason = reason.clone();
                        device.health = Health::Unhealthy { reason };
                    }
                    Some((Verdict::NotRun(reason), _)) => {
                        not_run.insert(reason.clone());
                    }
                    _ => {}
                }
                wanted.insert(key, command.clone());
            }
        }
        self.verdicts.retain(|key, _| wanted.contains_key(key));
        wanted.retain(|key, command| {
            let ended = self.verdicts.get(key).map(|(_, ended)| *ended);
            ended.is_none_or(|ended| now.saturating_duration_since(ended) >= command.every)
        });
        if self.under_way.is_none() && !wanted.is_empty() {
            let root = root.to_owned();
            let all = move || {
                let each = wanted.into_iter();
                each.map(|(key, command)| (key, run(&command, &root)))
                    .collect()
            };
            self.under_way = Some(thread::spawn(all));
        }
        not_run
    }

    fn collect(&mut self, now: Instant) {
        let Some(ended) = self.under_way.take_if(|under_way| under_way.is_finished()) else {
            return;
        };
        for (key, verdict) in ended.join().unwrap_or_default() {
            self.verdicts.insert(key, (verdict, now));
        }
    }

    #[cfg(test)]
    pub(super) fn is_running(&self) -> bool {
        let under_way = self.under_way.as_ref();
        under_way.is_some_and(|under_way| !under_way.is_finished())
    }
}

fn key(command: &HealthCommand) -> Key {
    let program = command.program.display().to_string();
    [&[program], command.arguments.as_slice()].concat()
}
