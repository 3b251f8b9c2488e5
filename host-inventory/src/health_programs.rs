//! Runs the programs that report the health of a class's devices. A few programs run at the same
//! time, in threads, so that one that hangs does not delay the others. Each scan uses the last
//! result of each program, and a result that changes the health starts a scan at once. Until a
//! program has its first result, the health of its devices is determined without it.
//! If several devices have the same program with the same arguments, the program runs once
//! for all of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use device_class::discover::{Device, Health, HealthCommand};

use crate::Notifier;
use crate::health_program::{Outcome, run};

/// The time from the end of a program to its next start.
const REST: Duration = Duration::from_secs(60);

/// The number of programs of a class that run at the same time.
const MAX_RUNNING: usize = 4;

/// A program and its arguments.
type Key = Vec<String>;

#[derive(Debug, Default)]
pub(crate) struct HealthPrograms {
    outcomes: BTreeMap<Key, (Outcome, Instant)>,
    /// The results of the programs that run. The channel is closed when all have ended.
    running: Option<Receiver<(Key, Outcome)>>,
}

/// A program that is to be run.
struct DueProgram {
    key: Key,
    /// The command for each device, with the rule by which its output is judged, and whether the
    /// device was healthy by the last result. Without a result it counts as healthy.
    devices: Vec<(HealthCommand, bool)>,
}

impl HealthPrograms {
    /// Sets the health of devices by the last results, and starts the programs that are due.
    /// `notifier` is notified when a result differs from the last one. Returns the programs that
    /// could not be run, one line each.
    pub(crate) fn update_health(
        &mut self,
        devices: &mut [Device],
        root: &Path,
        now: Instant,
        notifier: Option<&Notifier>,
    ) -> BTreeSet<String> {
        self.collect(now);
        let mut not_run = BTreeSet::new();
        let mut wanted: BTreeMap<Key, Vec<HealthCommand>> = BTreeMap::new();
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
                wanted.entry(key).or_default().push(command);
            }
        }
        self.outcomes.retain(|key, _| wanted.contains_key(key));
        if self.running.is_none() {
            let due = wanted.into_iter().filter_map(|(key, commands)| {
                let last = self.outcomes.get(&key);
                if last.is_some_and(|(_, ended)| now.saturating_duration_since(*ended) < REST) {
                    return None;
                }
                let devices = commands.into_iter().map(|command| {
                    let health = last.map(|(outcome, _)| outcome.health(&command));
                    let was_healthy = health.is_none_or(|health| health.is_healthy());
                    (command, was_healthy)
                });
                let devices = devices.collect();
                Some(DueProgram { key, devices })
            });
            self.running = start(due.collect(), root, notifier);
        }
        not_run
    }

    /// Keeps the results of the programs that have ended.
    fn collect(&mut self, now: Instant) {
        while let Some(running) = &self.running {
            match running.try_recv() {
                Ok((key, outcome)) => {
                    self.outcomes.insert(key, (outcome, now));
                }
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => self.running = None,
            }
        }
    }

    /// Keeps the results, and returns whether a program runs.
    #[cfg(test)]
    pub(crate) fn is_running(&mut self, now: Instant) -> bool {
        self.collect(now);
        self.running.is_some()
    }
}

/// Starts threads that run the programs, and returns the receiver of the results. Returns `None`
/// if there are no programs.
fn start(
    programs: VecDeque<DueProgram>,
    root: &Path,
    notifier: Option<&Notifier>,
) -> Option<Receiver<(Key, Outcome)>> {
    let threads = programs.len().min(MAX_RUNNING);
    if threads == 0 {
        return None;
    }
    let programs = Arc::new(Mutex::new(programs));
    let (sender, results) = mpsc::channel();
    for _ in 0..threads {
        let (programs, root) = (Arc::clone(&programs), root.to_owned());
        let (sender, notifier) = (sender.clone(), notifier.cloned());
        thread::spawn(move || run_all(&programs, &root, &sender, notifier.as_ref()));
    }
    Some(results)
}

/// Runs programs until none is left.
fn run_all(
    programs: &Mutex<VecDeque<DueProgram>>,
    root: &Path,
    results: &Sender<(Key, Outcome)>,
    notifier: Option<&Notifier>,
) {
    let next = || {
        let mut programs = programs.lock().unwrap_or_else(PoisonError::into_inner);
        programs.pop_front()
    };
    while let Some(DueProgram { key, devices }) = next() {
        // All devices of an entry have the same program and the same arguments.
        let Some((command, _)) = devices.first() else {
            continue;
        };
        let outcome = run(command, root);
        let mut devices = devices.iter();
        let is_changed = devices
            .any(|(command, was_healthy)| outcome.health(command).is_healthy() != *was_healthy);
        // The receiver is gone if the class is no longer used.
        if results.send((key, outcome)).is_err() {
            return;
        }
        if let Some(notifier) = notifier.filter(|_| is_changed) {
            notifier.notify();
        }
    }
}

fn key(command: &HealthCommand) -> Key {
    let program = command.program.display().to_string();
    [&[program], command.arguments.as_slice()].concat()
}
