//! Implements `boathook facts`, which runs the programs of drivers and writes the driver facts that
//! they report.

use std::io::{self, Write};
use std::path::Path;
use std::process;

use device_class::config::Config;
use device_class::load;
use device_class::name::ClassName;
use injection_plan::facts::ReportedFacts;
use serde::Serialize;

use super::{CommandError, print_json, select_sources};
use crate::exit::ExitCode;
use crate::{log, planner};

/// The result of running the driver's programs of one class.
#[derive(Serialize)]
struct ClassFacts {
    class: ClassName,
    /// The path of the file with the driver facts, or `None` if the programs reported none.
    file: Option<String>,
    programs: Vec<String>,
    /// The version that the driver's programs report.
    version: Option<String>,
    faults: Vec<String>,
}

/// Runs the driver's programs of the classes `names`, or of all classes if `names` is empty, and
/// writes the driver facts.
pub(super) fn run(
    names: &[ClassName],
    as_json: bool,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let root = &config.host_root;
    let mut lines = Vec::new();
    for source in select_sources(names, load::read_each_source(&config.classes)?)? {
        let class = config.class(&source?)?;
        if class.spec.facts.is_empty() || !class.settings.uses_facts() {
            continue;
        }
        if root != Path::new("/") {
            let error = "programs are run in the host's root directory only";
            return Err(CommandError::Output(io::Error::other(error)));
        }
        let reported_facts = ReportedFacts::run_programs(&class, root, |program, arguments| {
            let mut command = process::Command::new(program);
            command.args(arguments);
            command
        });
        // The host is opened again for each class, because the opened view does not show changes
        // that the programs have made.
        let host = planner::open_host(config)?;
        let write_result = reported_facts.write(&class, root, &host);
        let file = Path::new(device_class::facts::FACTS_DIR).join(class.name.as_str());
        let (path, exists) =
            write_result.map_err(|error| CommandError::File { path: file, error })?;
        lines.push(ClassFacts {
            class: class.name,
            file: exists.then(|| path.display().to_string()),
            version: reported_facts.version().map(str::to_owned),
            programs: reported_facts.programs,
            faults: reported_facts.faults,
        });
    }
    let has_fault = lines.iter().any(|line| !line.faults.is_empty());
    if as_json {
        print_json(&serde_json::json!({ "classes": lines }))?;
    } else {
        let out = &mut io::stdout().lock();
        for line in &lines {
            match (&line.file, &line.version) {
                (Some(file), Some(version)) => {
                    writeln!(out, "{}: wrote {file}, of version {version}", line.class)?;
                }
                (Some(file), None) => writeln!(out, "{}: wrote {file}", line.class)?,
                (None, _) => writeln!(out, "{}: its programs reported nothing", line.class)?,
            }
        }
    }
    for line in &lines {
        for fault in &line.faults {
            log::warning(&format!("{}: {fault}", line.class));
        }
    }
    Ok(if has_fault {
        ExitCode::Failure
    } else {
        ExitCode::Success
    })
}
