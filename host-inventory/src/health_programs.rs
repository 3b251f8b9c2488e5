//! Runs the programs that report the health of a class's devices. Threads run a few programs at
//! the same time, so that a hanging program does not delay the others. Each scan uses the last
//! result of each program, and a result that changes a device's health starts a scan at once. A
//! program that has no result yet does not affect the health of its devices. Devices with the same
//! program and arguments share one run.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use device_class::discover::{Device, Health, HealthCommand};

use crate::Notifier;
use crate::health_program::{ProgramOutcome, run_health_program};

/// The time between the end of a program and its next start.
const RUN_INTERVAL: Duration = Duration::from_secs(60);

/// The number of programs of one class that run at the same time.
const MAX_RUNNING: usize = 4;

/// A program and its arguments, which identify a run.
type CommandLine = Vec<String>;

/// The health programs of one class and their last results.
#[derive(Debug, Default)]
pub(crate) struct HealthPrograms {
    outcomes: BTreeMap<CommandLine, (ProgramOutcome, Instant)>,
    /// Receives the results of the running programs. The channel is closed when all have ended.
    running: Option<Receiver<(CommandLine, ProgramOutcome)>>,
}

/// A program that is due to run.
struct DueProgram {
    command_line: CommandLine,
    /// For each device: the command with the rule that judges its output, and whether the last
    /// result was healthy. A device without a result counts as healthy.
    devices: Vec<(HealthCommand, bool)>,
}

impl HealthPrograms {
    /// Applies the last results to the health of `devices`, and starts the programs that are due.
    /// `notifier` is notified when a new result differs from the last one. Returns one line for
    /// each program that could not be run.
    pub(crate) fn update_health(
        &mut self,
        devices: &mut [Device],
        root: &Path,
        now: Instant,
        notifier: Option<&Notifier>,
    ) -> BTreeSet<String> {
        self.collect_results(now);
        let mut not_run = BTreeSet::new();
        let mut wanted: BTreeMap<CommandLine, Vec<HealthCommand>> = BTreeMap::new();
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
                let command_line = command_line(&command);
                match self.outcomes.get(&command_line) {
                    Some((ProgramOutcome::NotRun(reason), _)) => {
                        not_run.insert(reason.clone());
                    }
                    Some((outcome, _)) if device.is_healthy_in_parts() => {
                        let health = outcome.judge_health(&command);
                        if !health.is_healthy() {
                            device.health = health;
                        }
                    }
                    _ => {}
                }
                wanted.entry(command_line).or_default().push(command);
            }
        }
        self.outcomes
            .retain(|command_line, _| wanted.contains_key(command_line));
        if self.running.is_none() {
            let due = wanted.into_iter().filter_map(|(command_line, commands)| {
                let last = self.outcomes.get(&command_line);
                if last
                    .is_some_and(|(_, ended)| now.saturating_duration_since(*ended) < RUN_INTERVAL)
                {
                    return None;
                }
                let devices = commands.into_iter().map(|command| {
                    let health = last.map(|(outcome, _)| outcome.judge_health(&command));
                    let was_healthy = health.is_none_or(|health| health.is_healthy());
                    (command, was_healthy)
                });
                let devices = devices.collect();
                Some(DueProgram {
                    command_line,
                    devices,
                })
            });
            self.running = start_threads(due.collect(), root, notifier);
        }
        not_run
    }

    /// Stores the results of programs that have ended.
    fn collect_results(&mut self, now: Instant) {
        while let Some(running) = &self.running {
            match running.try_recv() {
                Ok((command_line, outcome)) => {
                    self.outcomes.insert(command_line, (outcome, now));
                }
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => self.running = None,
            }
        }
    }

    /// Stores the results of programs that have ended, and returns whether any program still runs.
    #[cfg(test)]
    pub(crate) fn is_running(&mut self, now: Instant) -> bool {
        self.collect_results(now);
        self.running.is_some()
    }
}

/// Starts threads that run the programs, and returns the receiver of their results. Returns `None`
/// if `programs` is empty.
fn start_threads(
    programs: VecDeque<DueProgram>,
    root: &Path,
    notifier: Option<&Notifier>,
) -> Option<Receiver<(CommandLine, ProgramOutcome)>> {
    let threads = programs.len().min(MAX_RUNNING);
    if threads == 0 {
        return None;
    }
    let programs = Arc::new(Mutex::new(programs));
    let (sender, results) = mpsc::channel();
    for _ in 0..threads {
        let (programs, root) = (Arc::clone(&programs), root.to_owned());
        let (sender, notifier) = (sender.clone(), notifier.cloned());
        thread::spawn(move || run_queue(&programs, &root, &sender, notifier.as_ref()));
    }
    Some(results)
}

/// Runs programs of the queue until it is empty.
fn run_queue(
    programs: &Mutex<VecDeque<DueProgram>>,
    root: &Path,
    results: &Sender<(CommandLine, ProgramOutcome)>,
    notifier: Option<&Notifier>,
) {
    let next = || {
        let mut programs = programs.lock().unwrap_or_else(PoisonError::into_inner);
        programs.pop_front()
    };
    while let Some(DueProgram {
        command_line,
        devices,
    }) = next()
    {
        // All devices of an entry share one program with the same arguments.
        let Some((command, _)) = devices.first() else {
            continue;
        };
        let outcome = run_health_program(command, root);
        let mut devices = devices.iter();
        let is_changed = devices.any(|(command, was_healthy)| {
            outcome.judge_health(command).is_healthy() != *was_healthy
        });
        // The receiver is dropped when the class is no longer served. Nobody needs the result
        // then.
        if results.send((command_line, outcome)).is_err() {
            return;
        }
        if let Some(notifier) = notifier.filter(|_| is_changed) {
            notifier.notify();
        }
    }
}

fn command_line(command: &HealthCommand) -> CommandLine {
    let program = command.program.display().to_string();
    [&[program], command.arguments.as_slice()].concat()
}
