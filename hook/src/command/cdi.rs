//! `boathook cdi generate`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use device_class::config::Config;
use device_class::load::{self, ClassSource};
use device_class::name::ClassName;
use injection_plan::cdi::directory::{self, Change, DirectoryError};
use injection_plan::cdi::{Description, Generated, Generator, Omission, ThinHook};
use serde_json::{Value, json};

use super::CommandError;
use crate::cli::CdiForm;
use crate::exit::ExitCode;
use crate::log;
use crate::planner;

pub(super) struct Generate<'a> {
    /// The classes; none represents all.
    pub classes: &'a [ClassName],
    pub directory: &'a Path,
    pub form: CdiForm,
    pub config: &'a Config,
    /// Whether what is done is printed as JSON.
    pub json: bool,
}

/// Why a specification could not be made or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CdiError {
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error("the path of this program is not known")]
    Program(#[source] io::Error),
}

/// What could not be done.
struct Problem {
    text: String,
    is_error: bool,
}

impl Problem {
    fn of(omission: &Omission) -> Self {
        Problem {
            text: log::chain(omission),
            is_error: omission.is_error(),
        }
    }

    fn report(&self) {
        match self.is_error {
            true => log::error(&self.text),
            false => log::warning(&self.text),
        }
    }
}

impl Generate<'_> {
    /// Writes the specifications. An unchanged file is not written again.
    pub(super) fn write(&self) -> Result<ExitCode, CommandError> {
        let (changes, problems) = self.update()?;
        problems.iter().for_each(Problem::report);
        if self.json {
            let changes: Vec<Value> = changes.iter().map(in_json).collect();
            let texts: Vec<&str> = problems.iter().map(|problem| &*problem.text).collect();
            super::print_json(&json!({ "changes": changes, "problems": texts }))?;
        } else if changes.is_empty() {
            report("nothing has changed");
        }
        Ok(match problems.iter().any(|problem| problem.is_error) {
            true => ExitCode::Config,
            false => ExitCode::Success,
        })
    }

    /// Writes what has changed, and prints it unless JSON is wanted. The first value is
    /// what was written or removed.
    fn update(&self) -> Result<(Vec<Change>, Vec<Problem>), CommandError> {
        let generated = self.generated()?;
        let all = self.classes.is_empty();
        let changes =
            directory::update(self.directory, &generated, |_| all).map_err(CdiError::from)?;
        let mut problems: Vec<_> = generated.omissions.iter().map(Problem::of).collect();
        let (conflicts, changes): (Vec<Change>, Vec<Change>) = changes
            .into_iter()
            .partition(|change| matches!(change, Change::Conflict { .. }));
        problems.extend(conflicts.iter().map(|conflict| Problem {
            text: conflict.to_string(),
            is_error: true,
        }));
        if !self.json {
            changes
                .iter()
                .for_each(|change| report(&change.to_string()));
        }
        Ok((changes, problems))
    }

    fn generated(&self) -> Result<Generated, CommandError> {
        let config = self.config;
        let host = planner::open_host(config)?;
        let program = this_program()?;
        let generator = Generator {
            only: self.classes,
            description: Description {
                hook: (self.form == CdiForm::Thin).then_some(ThinHook {
                    program: &program,
                    timeout: runtime_config::HOOK_TIMEOUT,
                }),
                host_root: &config.host_root,
            },
        };
        let sources = load::each_source(&config.classes)?;
        super::known_classes(self.classes, sources.iter().flatten())?;
        let is_wanted =
            |source: &ClassSource| self.classes.is_empty() || self.classes.contains(&source.name);
        let classes = sources.into_iter().filter_map(|source| match source {
            // What is wrong with a class concerns only its own devices.
            Ok(source) => {
                Some(config.class(&source)).filter(|class| class.is_ok() || is_wanted(&source))
            }
            Err(error) => Some(Err(error)),
        });
        Ok(generator.generate(classes, &host))
    }
}

fn in_json(change: &Change) -> Value {
    match change {
        Change::Wrote {
            path,
            kind,
            devices,
        } => json!({ "wrote": path, "kind": kind, "devices": devices }),
        Change::Removed(path) => json!({ "removed": path }),
        Change::Conflict { kind, other } => json!({ "conflict": other, "kind": kind }),
    }
}

/// This program, by a path that an upgrade keeps.
fn this_program() -> Result<PathBuf, CdiError> {
    let program = std::env::current_exe().map_err(CdiError::Program)?;
    let lasting = Path::new(runtime_config::INSTALLED_HOOK);
    let is_same = fs::canonicalize(lasting).is_ok_and(|path| path == program);
    Ok(if is_same { lasting.to_owned() } else { program })
}

/// Prints a line. A reader that has gone away does not end the work halfway.
fn report(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}
