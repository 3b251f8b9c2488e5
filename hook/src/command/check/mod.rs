//! `boathook check`: what this host can do, and what to mend.

mod classes;
mod engines;
mod kernel;

use std::io;

use device_class::config::Config;

use super::{CommandError, table};
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
    /// What was looked at.
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
    findings.extend(engines::check(&config.host_root));
    findings.extend(classes::check(config));
    let rows: Vec<_> = findings.iter().map(Finding::row).collect();
    table::write(&mut io::stdout().lock(), &rows)?;
    let worst = findings.iter().map(|finding| finding.verdict).max();
    Ok(match worst {
        Some(Verdict::Error) => ExitCode::Failure,
        _ => ExitCode::Success,
    })
}
