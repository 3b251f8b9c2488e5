//! Runs the programs of a class that report driver facts.

use std::path::Path;
use std::process::Command;
use std::thread;

use device_class::class::{FactsProgram, Server};
use device_class::discover::HostProgram;
use device_class::facts::Facts;
use device_class::host::RealHost;
use device_class::template::Attributes;
use device_class::{DeviceClass, discover, ownership};

use super::ReportedFacts;
use crate::program_output;

/// The maximum number of bytes that are read of a program's output. On a host with 16 GPUs a program
/// prints about half as much.
const MAX_OUTPUT: usize = 1 << 20;

impl ReportedFacts {
    /// Runs the programs of a class on the host whose root directory is `root`, at the same
    /// time where none needs the facts of another. `start` returns the command for a program and
    /// its arguments. A program that does not exist on the host is skipped without a fault.
    pub fn run_programs(
        class: &DeviceClass,
        root: &Path,
        start: impl Fn(&Path, &[String]) -> Command + Sync,
    ) -> Self {
        let mut reported = ReportedFacts::default();
        let mut all = Vec::new();
        let host = match RealHost::open(root) {
            Ok(host) => host,
            Err(error) => {
                let root = root.display();
                reported.faults.push(format!("{root}: {error}"));
                return reported;
            }
        };
        // `boathook-dra` can make parts that the host does not have yet. For a class that it serves,
        // programs that report only parts are run even if no part exists.
        let makes_parts = class.settings.serve == Server::Dra;
        let is_only_for_parts = |program: &FactsProgram| match &program.needs {
            Some(path) => !discover::matches(path, &host),
            None => program.for_parts,
        };
        let programs = class.spec.facts.iter();
        let programs = programs.map(|program| (program, is_only_for_parts(program)));
        let programs = programs.filter(|(_, only_for_parts)| makes_parts || !only_for_parts);
        let programs: Vec<(&FactsProgram, bool)> = programs.collect();
        // Programs whose arguments do not depend on facts of other programs are run at the same time,
        // because each program may need seconds to initialize the driver of every device.
        for batch in programs.chunk_by(|_, (next, _)| next.for_each_fact.is_none()) {
            let commands = |program| {
                let commands = discover::fact_commands(program, &all, &host);
                let path = commands.first().and_then(|(command, _)| command.first());
                let find = |path| discover::find_host_program(class, Path::new(path), &host);
                (path.map(find), commands)
            };
            let commands = batch.iter().map(|(program, _)| commands(program));
            let batch_commands: Vec<ProgramCommands> = commands.collect();
            let run_each = |program: &FactsProgram, (place, commands): ProgramCommands| {
                let mut runs = Vec::new();
                for (command, known) in commands {
                    let result = run(program, &command, place.as_ref(), &known, root, &start);
                    // A program that failed or hung would probably do so again with other arguments,
                    // so its other commands are not run.
                    let has_failed = result.fault.is_some();
                    runs.push((command.join(" "), result));
                    if has_failed {
                        break;
                    }
                }
                runs
            };
            let run_each = &run_each;
            let results: Vec<Vec<(String, RunResult)>> = thread::scope(|scope| {
                let each = batch.iter().zip(batch_commands);
                let running = each.map(|((program, _), commands)| {
                    let program: &FactsProgram = program;
                    scope.spawn(move || run_each(program, commands))
                });
                let running: Vec<_> = running.collect();
                let ended = running.into_iter().map(|thread| thread.join());
                ended.map(Result::unwrap_or_default).collect()
            });
            for ((program, only_for_parts), runs) in batch.iter().zip(results) {
                let mut each = runs.iter();
                if !runs.is_empty() && each.all(|(_, result)| result.has_succeeded()) {
                    let mut all = class.spec.facts.iter();
                    let place = all.position(|other| std::ptr::eq(other, *program));
                    reported.succeeded.extend(place);
                }
                for (command, result) in runs {
                    if let Some(fault) = result.fault.filter(|_| !only_for_parts) {
                        reported.faults.push(format!("{command} {fault}"));
                    }
                    if !result.facts.is_empty() {
                        all.extend(result.facts);
                        reported.programs.push(command);
                    }
                }
            }
        }
        reported.facts = Facts::from_pairs(all);
        reported
    }
}

/// The result of one run of a program. Both fields are empty if the program does not exist, or if its
/// output matches `cannot_tell` in the class file.
#[derive(Debug, Default)]
struct RunResult {
    /// The keys and values that the program printed, even if it failed: a program that fails because
    /// of one device may have reported the others before.
    facts: Vec<(String, String)>,
    fault: Option<String>,
}

impl RunResult {
    fn has_succeeded(&self) -> bool {
        self.fault.is_none() && !self.facts.is_empty()
    }

    fn failed(fault: String) -> Self {
        RunResult {
            fault: Some(fault),
            ..RunResult::default()
        }
    }
}

/// The place of a program on this host, and its commands, each with the attributes in it.
type ProgramCommands = (Option<HostProgram>, Vec<(Vec<String>, Attributes)>);

/// Runs one program and returns the facts that it reports.
fn run(
    program: &FactsProgram,
    command: &[String],
    place: Option<&HostProgram>,
    known: &Attributes,
    root: &Path,
    start: impl Fn(&Path, &[String]) -> Command,
) -> RunResult {
    let (Some((_, arguments)), Some(place)) = (command.split_first(), place) else {
        return RunResult::default();
    };
    let path = &*place.path;
    match ownership::program(root, path) {
        Ok(_) => {}
        Err(error) if error.is_absent() => return RunResult::default(),
        Err(error) => return RunResult::failed(format!("cannot be run: {error}")),
    }
    let timeout = program.timeout.get();
    let mut command = start(path, arguments);
    program_output::set_library_path(&mut command, &place.library_path);
    let ended = program_output::run_program(command, timeout, MAX_OUTPUT);
    let seconds = timeout.as_secs();
    let (status, text) = match ended {
        Err(error) => return RunResult::failed(format!("cannot be run: {error}")),
        Ok(None) => {
            let fault = format!("took longer than {seconds} seconds and was killed");
            return RunResult::failed(fault);
        }
        Ok(Some(ended)) => ended,
    };
    let facts = program.facts(&text, known);
    // `cannot_tell` may match empty output, which a program that was killed has as well.
    // Empty output therefore counts only if the program succeeded.
    let fault = if program.cannot_tell(&text) && (status.success() || !text.trim().is_empty()) {
        return RunResult::default();
    } else if !status.success() {
        Some(format!("failed ({status})"))
    } else if facts.is_empty() {
        Some("printed nothing that the class knows".into())
    } else {
        None
    };
    RunResult { facts, fault }
}
