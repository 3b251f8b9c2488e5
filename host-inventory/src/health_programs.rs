//! Runs the programs that report the health of a class's devices. The programs run one
//! after another in a thread, and each scan uses the last result of each program. Until a
//! program has its first result, the health of its devices is determined without it.
//! If several devices have the same program with the same arguments, the program runs once
//! for all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use device_class::discover::{Device, Health, HealthCommand};

use crate::health_program::{Outcome, run};

/// The time from the end of a program to its next start.
const REST: Duration = Duration::from_secs(60);

/// A program and its arguments.
type Key = Vec<String>;

#[derive(Debug, Default)]
pub(crate) struct HealthPrograms {
    outcomes: BTreeMap<Key, (Outcome, Instant)>,
    running: Option<JoinHandle<Vec<(Key, Outcome)>>>,
}

impl HealthPrograms {
    /// Sets the health of devices by the last results, and starts the programs that are due.
    /// Returns the programs that could not be run, one line each.
    pub(crate) fn update_health(
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
                let command = match HealthCommand::from_reading(reading, device) {
                    None => continue,
                    Some(Ok(command)) => command,
                    Some(Err(error)) => {
                        let reason = error.to_string();
                        device.health = Health::Unhealthy { reason };
                        continue;
                    }
                };
                let key = key(&command);
                match self.outcomes.get(&key) {
                    Some((Outcome::NotRun(reason), _)) => {
                        not_run.insert(reason.clone());
                    }
                    Some((outcome, _)) if device.is_healthy_in_parts() => {
                        let health = outcome.health(&command);
                        if !health.is_healthy() {
                            device.health = health;
                        }
                    }
                    _ => {}
                }
                wanted.insert(key, command);
            }
        }
        self.outcomes.retain(|key, _| wanted.contains_key(key));
        wanted.retain(|key, _| {
            let ended = self.outcomes.get(key).map(|(_, ended)| *ended);
            ended.is_none_or(|ended| now.saturating_duration_since(ended) >= REST)
        });
        if self.running.is_none() && !wanted.is_empty() {
            let root = root.to_owned();
            let all = move || {
                let each = wanted.into_iter();
                each.map(|(key, command)| (key, run(&command, &root)))
                    .collect()
            };
            self.running = Some(thread::spawn(all));
        }
        not_run
    }

    fn collect(&mut self, now: Instant) {
        let Some(ended) = self.running.take_if(|running| running.is_finished()) else {
            return;
        };
        for (key, outcome) in ended.join().unwrap_or_default() {
            self.outcomes.insert(key, (outcome, now));
        }
    }

    #[cfg(test)]
    pub(crate) fn is_running(&self) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|running| !running.is_finished())
    }
}

fn key(command: &HealthCommand) -> Key {
    let program = command.program.display().to_string();
    [&[program], command.arguments.as_slice()].concat()
}
