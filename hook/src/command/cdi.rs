//! `boathook cdi generate`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use device_class::config::Config;
use device_class::load::{self, ClassSource};
use device_class::name::ClassName;
use injection_plan::cdi::directory::{self, Change, DirectoryError};
use injection_plan::cdi::{Description, Generated, Generator, Omission, Specification, ThinHook};
use serde_json::{Value, json};

use super::{CommandError, cdi_names};
use crate::cli::{CdiCommand, CdiForm};
use crate::exit::ExitCode;
use crate::installation::hook_beside_this_program;
use crate::log;
use crate::planner;

/// Why a specification could not be made or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CdiError {
    #[error("cannot write the specifications; run this as root, or name another --output")]
    Directory(#[from] DirectoryError),
    #[error("{} does not exist, which the specifications name as the hook", .0.display())]
    NoHook(PathBuf),
}

struct Problem {
    text: String,
    is_error: bool,
}

impl Problem {
    fn from_omission(omission: &Omission) -> Self {
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

/// Writes the specifications. An unchanged file is not written again.
pub(super) fn run(
    command: &CdiCommand,
    json: bool,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let (classes, output, all, form) = match command {
        CdiCommand::Generate {
            classes,
            output,
            all,
            form,
        } => (classes, output, *all, *form),
        CdiCommand::List { directory } => {
            return cdi_names::list(directory.as_deref(), json, config);
        }
    };
    let mut generated = generated(classes, all, form, config)?;
    warn_of_disabled(classes, config)?;
    if classes.is_empty() && !all {
        let before = named_before(output, &generated, form, config)?;
        generated.specifications.extend(before);
    }
    let is_old = |_: &str| classes.is_empty();
    let update = directory::update(output, &generated, is_old, |text| {
        Some(directory::kind_without_parser(text))
    });
    let update = update.map_err(CdiError::from)?;
    let (conflicts, changes): (Vec<Change>, Vec<Change>) = update
        .changes
        .into_iter()
        .partition(|change| matches!(change, Change::Conflict { .. }));
    let mut problems: Vec<_> = generated
        .omissions
        .iter()
        .map(Problem::from_omission)
        .collect();
    problems.extend(conflicts.iter().map(|conflict| Problem {
        text: conflict.to_string(),
        is_error: true,
    }));
    problems.extend(update.failures.iter().map(|(kind, error)| Problem {
        text: format!("{kind} is left out: {}", log::chain(error)),
        is_error: true,
    }));
    if !json {
        let changes = changes.iter();
        changes.for_each(|change| report(&change.to_string()));
    }
    problems.iter().for_each(Problem::report);
    if json {
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

/// The unit that runs at boot names no classes.
fn warn_of_disabled(names: &[ClassName], config: &Config) -> Result<(), CommandError> {
    for source in load::each_source(&config.classes)?.iter().flatten() {
        let name = &source.name;
        let is_disabled = || config.class(source).is_ok_and(|class| !class.spec.enabled);
        if names.contains(name) && is_disabled() {
            log::warning(&format!(
                "{name} is not enabled: boathook-cdi.service writes its names after a boot only if \
                 config.toml has [class.{name}] with enabled = true"
            ));
        }
    }
    Ok(())
}

/// Those of classes that are not enabled, whose files were written when they were named. One
/// that config.toml disables is left out.
fn named_before(
    output: &Path,
    enabled: &Generated,
    form: CdiForm,
    config: &Config,
) -> Result<Vec<Specification>, CommandError> {
    let is_disabled = |name: &ClassName| {
        let class = config.class.get(name);
        class.is_some_and(|class| class.enabled == Some(false))
    };
    let sources = load::each_source(&config.classes)?;
    let names = sources.into_iter().flatten().map(|source| source.name);
    let names: Vec<ClassName> = names.filter(|name| !is_disabled(name)).collect();
    let mut all = generated(&names, false, form, config)?.specifications;
    all.retain(|one| {
        let mut enabled = enabled.specifications.iter();
        !enabled.any(|enabled| enabled.kind == one.kind) && output.join(one.file_name()).exists()
    });
    Ok(all)
}

/// The specifications of the classes; no name represents those that are enabled, or `all`.
fn generated(
    names: &[ClassName],
    all: bool,
    form: CdiForm,
    config: &Config,
) -> Result<Generated, CommandError> {
    let host = planner::open_host(config)?;
    let hook = match form {
        CdiForm::Thin => Some(find_hook()?),
        CdiForm::Plain => None,
    };
    let generator = Generator {
        only: names,
        description: Description {
            hook: hook.as_deref().map(|program| ThinHook {
                program,
                timeout: runtime_config::HOOK_TIMEOUT,
            }),
            host_root: &config.host_root,
        },
    };
    let sources = load::each_source(&config.classes)?;
    super::known_classes(names, sources.iter().flatten())?;
    let is_wanted = |source: &ClassSource| names.is_empty() || names.contains(&source.name);
    let classes = sources.into_iter().filter_map(|source| match source {
        // What is wrong with a class concerns only its own devices.
        Ok(source) => Some(config.class(&source)).filter(|class| match class {
            Ok(class) => all || class.spec.enabled || names.contains(&class.name),
            Err(_) => is_wanted(&source),
        }),
        Err(error) => Some(Err(error)),
    });
    Ok(generator.generate(classes, &host))
}

fn in_json(change: &Change) -> Value {
    match change {
        Change::Wrote {
            path,
            kind,
            devices,
        } => json!({ "wrote": path, "kind": kind, "devices": devices }),
        Change::Removed(path) => json!({ "removed": path }),
        Change::Conflict { kind, other, .. } => json!({ "conflict": other, "kind": kind }),
    }
}

/// Returns the path of the hook beside this program, by a path that an upgrade keeps.
fn find_hook() -> Result<PathBuf, CdiError> {
    let hook = hook_beside_this_program();
    if !hook.is_file() {
        return Err(CdiError::NoHook(hook));
    }
    let lasting = Path::new(runtime_config::INSTALLED_HOOK);
    let is_same = fs::canonicalize(lasting).is_ok_and(|path| path == hook);
    Ok(if is_same { lasting.to_owned() } else { hook })
}

/// Prints a line. A reader that has gone away does not end the work halfway.
fn report(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}
