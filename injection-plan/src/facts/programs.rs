//! Runs the host programs that report properties of a class's driver (facts), such as its version,
//! and parses their output.

use std::path::Path;
use std::process::Command;
use std::thread;

use device_class::class::{PropertyProgram, Server};
use device_class::discover::HostProgram;
use device_class::driver_properties::DriverProperties;
use device_class::host::RealHost;
use device_class::template::Attributes;
use device_class::{DeviceClass, discover, ownership};

use super::ReportedProperties;
use crate::program_output;

/// The maximum number of bytes that are read from the output of a program. On a host with 16 GPUs a
/// program prints about half as much.
const MAX_OUTPUT_BYTES: usize = 1 << 20;

impl ReportedProperties {
    /// Runs the programs of a class that report facts, on the host whose root directory is `root`.
    /// Programs that do not need each other's facts run at the same time. `make_command` returns
    /// the command for a program and its arguments. A program that does not exist on the host is
    /// skipped, and is not a fault.
    pub fn run_programs(
        class: &DeviceClass,
        root: &Path,
        make_command: impl Fn(&Path, &[String]) -> Command + Sync,
    ) -> Self {
        let mut reported_properties = ReportedProperties::default();
        let mut all_facts = Vec::new();
        let host = match RealHost::open(root) {
            Ok(host) => host,
            Err(error) => {
                let root = root.display();
                reported_properties.faults.push(format!("{root}: {error}"));
                return reported_properties;
            }
        };
        // `boathook-dra` can create partitions that the host does not have yet. For a class that
        // `boathook-dra` serves, the programs that report only partitions run even if no partition
        // exists.
        let may_make_parts = class.settings.server == Server::Dra;
        let reports_only_parts = |program: &PropertyProgram| match &program.required_path {
            Some(path) => !discover::has_matching_path(path, &host),
            None => program.is_for_parts,
        };
        let programs = class.spec.property_programs.iter();
        let classified_programs = programs.map(|program| (program, reports_only_parts(program)));
        let selected_programs =
            classified_programs.filter(|(_, only_parts)| may_make_parts || !only_parts);
        let programs: Vec<(&PropertyProgram, bool)> = selected_programs.collect();
        // The programs of a batch run at the same time, because each of them may need seconds to
        // initialize the driver of every device. The arguments of these programs may depend on the
        // facts that earlier batches reported.
        for batch in programs.chunk_by(|_, (next, _)| next.input_property_key.is_none()) {
            // The host is opened again, because an earlier program may have loaded the driver. An
            // open `RealHost` does not notice this.
            let host = match RealHost::open(root) {
                Ok(host) => host,
                Err(error) => {
                    let root = root.display();
                    reported_properties.faults.push(format!("{root}: {error}"));
                    break;
                }
            };
            let list_commands = |program| {
                let commands = discover::build_property_commands(program, &all_facts, &host);
                let path = commands.first().and_then(|(command, _)| command.first());
                let find_program =
                    |path| discover::find_host_program(class, Path::new(path), &host);
                (path.map(find_program), commands)
            };
            let commands = batch.iter().map(|(program, _)| list_commands(program));
            let batch_commands: Vec<ProgramCommands> = commands.collect();
            let run_commands =
                |program: &PropertyProgram, (host_program, commands): ProgramCommands| {
                    let mut runs = Vec::new();
                    for (command, attributes) in commands {
                        let result = run_command(
                            program,
                            &command,
                            host_program.as_ref(),
                            &attributes,
                            root,
                            &make_command,
                        );
                        // If a command of a program failed or hung, the program's other commands
                        // are not run, because they would probably fail or hang as well.
                        let has_failed = result.fault.is_some();
                        runs.push((command.join(" "), result));
                        if has_failed {
                            break;
                        }
                    }
                    runs
                };
            let run_commands = &run_commands;
            let results: Vec<Vec<(String, RunResult)>> = thread::scope(|scope| {
                let batch = batch.iter().zip(batch_commands);
                let spawned_threads = batch.map(|((program, _), commands)| {
                    let program: &PropertyProgram = program;
                    scope.spawn(move || run_commands(program, commands))
                });
                let threads: Vec<_> = spawned_threads.collect();
                let results = threads.into_iter().map(|thread| thread.join());
                results.map(Result::unwrap_or_default).collect()
            });
            for ((program, only_parts), runs) in batch.iter().zip(results) {
                let mut results = runs.iter().map(|(_, result)| result);
                if !runs.is_empty() && results.all(RunResult::has_succeeded) {
                    let mut class_programs = class.spec.property_programs.iter();
                    let position = class_programs.position(|other| std::ptr::eq(other, *program));
                    reported_properties.successful_positions.extend(position);
                }
                for (command, result) in runs {
                    if let Some(fault) = result.fault.filter(|_| !only_parts) {
                        reported_properties
                            .faults
                            .push(format!("{command} {fault}"));
                    }
                    if !result.facts.is_empty() {
                        all_facts.extend(result.facts);
                        reported_properties.programs.push(command);
                    }
                }
            }
        }
        reported_properties.facts = DriverProperties::from_pairs(all_facts);
        reported_properties
    }
}

/// The result of one run of a program. Both fields are empty if the program does not exist, or if
/// its output matches the key `cannot_tell` of the class file.
#[derive(Debug, Default)]
struct RunResult {
    /// The keys and values that the program printed. They are kept even if the program failed,
    /// because it may have failed only for one device and reported the others.
    facts: Vec<(String, String)>,
    fault: Option<String>,
}

impl RunResult {
    fn has_succeeded(&self) -> bool {
        self.fault.is_none() && !self.facts.is_empty()
    }

    fn from_fault(fault: String) -> Self {
        RunResult {
            fault: Some(fault),
            ..RunResult::default()
        }
    }
}

/// A program of the host and its command lines. The program is `None` if there are no command
/// lines. Each command line has the attributes that its template was filled with.
type ProgramCommands = (Option<HostProgram>, Vec<(Vec<String>, Attributes)>);

/// Runs one command line of a program, and returns the facts that it reports. If users other than
/// root can replace the program, it is not run, and the result is a fault.
fn run_command(
    program: &PropertyProgram,
    command_line: &[String],
    host_program: Option<&HostProgram>,
    attributes: &Attributes,
    root: &Path,
    make_command: impl Fn(&Path, &[String]) -> Command,
) -> RunResult {
    let (Some((_, arguments)), Some(host_program)) = (command_line.split_first(), host_program)
    else {
        return RunResult::default();
    };
    let path = &*host_program.path;
    match ownership::resolve_trusted_program(root, path) {
        Ok(_) => {}
        Err(error) if error.is_absent() => return RunResult::default(),
        Err(error) => return RunResult::from_fault(format!("cannot be run: {error}")),
    }
    let timeout = program.timeout.get();
    let mut command = make_command(path, arguments);
    program_output::set_library_path(&mut command, &host_program.library_path);
    let result = program_output::run_program(command, timeout, MAX_OUTPUT_BYTES);
    let seconds = timeout.as_secs();
    let (status, text) = match result {
        Err(error) => return RunResult::from_fault(format!("cannot be run: {error}")),
        Ok(None) => {
            let fault = format!("took longer than {seconds} seconds and was killed");
            return RunResult::from_fault(fault);
        }
        Ok(Some(status_and_text)) => status_and_text,
    };
    let facts = program.parse_properties(&text, attributes);
    // `cannot_tell` may match empty output. A program that failed may also have printed nothing, so
    // empty output matches only if the program succeeded.
    let fault =
        if program.is_unsupported_output(&text) && (status.success() || !text.trim().is_empty()) {
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
