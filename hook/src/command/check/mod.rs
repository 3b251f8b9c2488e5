//! `boathook check`: the host's prerequisites, and what to fix.

mod classes;
mod kernel;

use std::io;
use std::path::Path;

use device_class::config::Config;
use device_class::name::ClassName;
use runtime_config::{Engine, RUNTIMES, program_directories};

use super::finding::{Finding, Verdict};
use super::output::Style;
use super::{CommandError, print_json};
use crate::exit::ExitCode;

/// Prints a line for everything that the hook needs of a host.
pub(super) fn run(
    names: &[ClassName],
    json: bool,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let mut findings = kernel::check();
    findings.extend(engines(&config.host_root));
    findings.extend(classes::check(names, config)?);
    if json {
        print_json(&findings)?;
    } else {
        let rows: Vec<_> = findings.iter().flat_map(Finding::rows).collect();
        Style::of_stdout().table(&mut io::stdout().lock(), &rows)?;
    }
    let worst = findings.iter().map(|finding| finding.verdict).max();
    Ok(match worst {
        Some(Verdict::Error) => ExitCode::Failure,
        _ => ExitCode::Success,
    })
}

/// Which engines and runtimes the host has.
fn engines(host_root: &Path) -> Vec<Finding> {
    let engines = Engine::ALL
        .iter()
        .flat_map(|engine| engine.facts().programs);
    let found: Vec<Finding> = engines
        .chain(&RUNTIMES)
        .filter_map(|program| {
            let paths = program_directories()
                .map(|dir| host_root.join(dir.trim_start_matches('/')).join(program));
            let path = paths.into_iter().find(|path| path.is_file())?;
            let text = path.display().to_string();
            Some(Finding::new(Verdict::Ok, format!("engine {program}"), text))
        })
        .collect();
    if found.is_empty() {
        let text = "none found in the usual directories; no engine will call the hook";
        let finding = Finding::new(Verdict::Warning, "engines", text);
        return vec![finding.fix("run this on the host, or set host_root in the configuration")];
    }
    found
}
