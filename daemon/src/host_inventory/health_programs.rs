//! Runs the programs that report the health of a class's devices. Threads run a few programs at the
//! same time, so that a hanging program does not delay the others. If several devices have the same
//! program and arguments, one run serves all of them.
//!
//! A scan uses the last result of each program. A result that changes a device's health starts a
//! scan at once. As long as a program has no result, it does not affect the health of its devices.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use device_class::discover::{Device, Health, HealthCommand};

use crate::host_inventory::Notifier;
use crate::host_inventory::health_program::{ProgramOutcome, run_health_program};

/// The time from the end of a health program to its next start.
const RUN_INTERVAL: Duration = Duration::from_secs(60);

/// The maximum number of programs of one class that run at the same time.
const MAX_RUNNING_PROGRAMS: usize = 4;

/// A program and its arguments. Devices with the same command line share one run of the program.
type CommandLine = Vec<String>;

/// The health programs of one class, with the last result of each.
#[derive(Debug, Default)]
pub(crate) struct HealthPrograms {
    outcomes: BTreeMap<CommandLine, (ProgramOutcome, Instant)>,
    /// The receiver of the results of the running programs. The channel is closed when all these
    /// programs have ended.
    result_receiver: Option<Receiver<(CommandLine, ProgramOutcome)>>,
}

/// A health program whose next run is due.
struct DueProgram {
    command_line: CommandLine,
    /// The devices for which the program runs. The rule in a device's command judges the output for
    /// this device. The flag says whether the last result was healthy. A device without a result
    /// counts as healthy.
    devices: Vec<(HealthCommand, bool)>,
}

impl HealthPrograms {
    /// Applies the last results of the programs to the health of `devices`, and starts the programs
    /// that are due. Notifies `notifier` when a new result changes the health of a device. Returns
    /// a message for each program that could not be run.
    pub(crate) fn update_health(
        &mut self,
        devices: &mut [Device],
        host_root: &Path,
        now: Instant,
        notifier: Option<&Notifier>,
    ) -> BTreeSet<String> {
        self.collect_results(now);
        let mut failure_reasons = BTreeSet::new();
        let mut needed_commands: BTreeMap<CommandLine, Vec<HealthCommand>> = BTreeMap::new();
        for device in devices {
            for deferred_check in &device.deferred_checks {
                let command = match HealthCommand::from_deferred_check(deferred_check, device) {
                    None => continue,
                    Some(Ok(command)) => command,
                    Some(Err(error)) => {
                        let reason = error.to_string();
                        device.health = Health::Unhealthy { reason };
                        continue;
                    }
                };
                let command_line = format_command_line(&command);
                match self.outcomes.get(&command_line) {
                    Some((ProgramOutcome::NotStarted(reason), _)) => {
                        failure_reasons.insert(reason.clone());
                    }
                    Some((outcome, _)) if device.has_healthy_parts() => {
                        let health = outcome.judge_health(&command);
                        if !health.is_healthy() {
                            device.health = health;
                        }
                    }
                    _ => {}
                }
                needed_commands
                    .entry(command_line)
                    .or_default()
                    .push(command);
            }
        }
        self.outcomes
            .retain(|command_line, _| needed_commands.contains_key(command_line));
        if self.result_receiver.is_none() {
            let due_programs =
                needed_commands
                    .into_iter()
                    .filter_map(|(command_line, commands)| {
                        let last_outcome = self.outcomes.get(&command_line);
                        let is_recent =
                            |end: &Instant| now.saturating_duration_since(*end) < RUN_INTERVAL;
                        if last_outcome.is_some_and(|(_, end)| is_recent(end)) {
                            return None;
                        }
                        let devices = commands.into_iter().map(|command| {
                            let health =
                                last_outcome.map(|(outcome, _)| outcome.judge_health(&command));
                            let was_healthy = health.is_none_or(|health| health.is_healthy());
                            (command, was_healthy)
                        });
                        let devices = devices.collect();
                        Some(DueProgram {
                            command_line,
                            devices,
                        })
                    });
            self.result_receiver = start_threads(due_programs.collect(), host_root, notifier);
        }
        failure_reasons
    }

    /// Stores the results of the programs that have ended, without waiting for the others.
    fn collect_results(&mut self, now: Instant) {
        while let Some(results) = &self.result_receiver {
            match results.try_recv() {
                Ok((command_line, outcome)) => {
                    self.outcomes.insert(command_line, (outcome, now));
                }
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => self.result_receiver = None,
            }
        }
    }

    /// Stores the results of programs that have ended. Returns whether any program is still
    /// running.
    #[cfg(test)]
    pub(crate) fn is_running(&mut self, now: Instant) -> bool {
        self.collect_results(now);
        self.result_receiver.is_some()
    }
}

/// Starts threads that run the programs. Returns the channel on which they send their results, or
/// `None` if `programs` is empty.
fn start_threads(
    programs: VecDeque<DueProgram>,
    host_root: &Path,
    notifier: Option<&Notifier>,
) -> Option<Receiver<(CommandLine, ProgramOutcome)>> {
    let thread_count = programs.len().min(MAX_RUNNING_PROGRAMS);
    if thread_count == 0 {
        return None;
    }
    let programs = Arc::new(Mutex::new(programs));
    let (sender, results) = mpsc::channel();
    for _ in 0..thread_count {
        let (programs, host_root) = (Arc::clone(&programs), host_root.to_owned());
        let (sender, notifier) = (sender.clone(), notifier.cloned());
        thread::spawn(move || run_queue(&programs, &host_root, &sender, notifier.as_ref()));
    }
    Some(results)
}

/// Runs the programs of the queue one after the other until the queue is empty. Sends the result of
/// each program.
fn run_queue(
    programs: &Mutex<VecDeque<DueProgram>>,
    host_root: &Path,
    results: &Sender<(CommandLine, ProgramOutcome)>,
    notifier: Option<&Notifier>,
) {
    let take_program = || {
        let mut programs = programs.lock().unwrap_or_else(PoisonError::into_inner);
        programs.pop_front()
    };
    while let Some(DueProgram {
        command_line,
        devices,
    }) = take_program()
    {
        // All devices of a due program have the same program and arguments, so the command of the
        // first one is run for all.
        let Some((command, _)) = devices.first() else {
            continue;
        };
        let outcome = run_health_program(command, host_root);
        let mut devices = devices.iter();
        let has_changed = devices.any(|(command, was_healthy)| {
            outcome.judge_health(command).is_healthy() != *was_healthy
        });
        // Sending fails if the receiver was dropped because the class is no longer served. The
        // thread then ends, because nobody needs the results.
        if results.send((command_line, outcome)).is_err() {
            return;
        }
        if let Some(notifier) = notifier.filter(|_| has_changed) {
            notifier.notify();
        }
    }
}

fn format_command_line(command: &HealthCommand) -> CommandLine {
    let program = command.program.display().to_string();
    [&[program], command.arguments.as_slice()].concat()
}
