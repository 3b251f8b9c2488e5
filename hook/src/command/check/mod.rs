//! `boathook check`: the host's prerequisites, and what to fix.

mod classes;
mod kernel;

use std::io;
use std::path::Path;

use device_class::config::Config;
use runtime_config::{Engine, RUNTIMES, program_directories};

use super::{CommandError, write_table};
use crate::exit::ExitCode;

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Ok,
    Warning,
    Error,
}

/// One line of the output.
struct Finding {
    verdict: Verdict,
    /// What was checked.
    subject: String,
    /// What was found and, unless it is ok, what to do.
    text: String,
}

impl Finding {
    fn new(verdict: Verdict, subject: impl Into<String>, text: impl Into<String>) -> Self {
        Finding {
            verdict,
            subject: subject.into(),
            text: text.into(),
        }
    }

    fn row(&self) -> [String; 3] {
        let verdict = match self.verdict {
            Verdict::Ok => "ok",
            Verdict::Warning => "warning",
            Verdict::Error => "error",
        };
        [verdict.to_owned(), self.subject.clone(), self.text.clone()]
    }
}

/// Prints a line for everything that the hook needs of a host.
pub(super) fn run(config: &Config) -> Result<ExitCode, CommandError> {
    let mut findings = kernel::check();
    findings.extend(engines(&config.host_root));
    findings.extend(classes::check(config));
    let rows: Vec<_> = findings.iter().map(Finding::row).collect();
    write_table(&mut io::stdout().lock(), &rows)?;
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
        return vec![Finding::new(Verdict::Warning, "engines", text)];
    }
    found
}
