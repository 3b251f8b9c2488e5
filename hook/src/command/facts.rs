//! `boathook facts`: runs the drivers' programs, and writes the driver facts.

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

/// The result of the driver programs of one class.
#[derive(Serialize)]
struct ClassFacts {
    class: ClassName,
    /// The file with the driver facts. `None` means that there are no facts.
    file: Option<String>,
    programs: Vec<String>,
    /// The version that the programs report about themselves.
    version: Option<String>,
    faults: Vec<String>,
}

/// Runs the driver programs of the named classes, and writes their facts. An empty list of
/// names means all classes.
pub(super) fn run(
    names: &[ClassName],
    json: bool,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let root = &config.host_root;
    let mut lines = Vec::new();
    for source in select_sources(names, load::each_source(&config.classes)?)? {
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
        // A view of the host does not notice changes, and the programs may have made some.
        let host = planner::open_host(config)?;
        let write_result = reported_facts.write(&class, root, &host);
        let file = Path::new(device_class::facts::DIRECTORY).join(class.name.as_str());
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
    if json {
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
    Ok(match has_fault {
        true => ExitCode::Failure,
        false => ExitCode::Success,
    })
}
