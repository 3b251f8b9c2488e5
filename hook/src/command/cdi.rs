//! `boathook cdi generate`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use device_class::config::Config;
use device_class::discover;
use device_class::load::{self, ClassSource};
use device_class::name::ClassName;
use injection_plan::cdi::directory::{self, DirectoryError, SpecificationChange};
use injection_plan::cdi::{
    Description, GeneratedSpecifications, Generator, Omission, Specification, SpecificationOwner,
    ThinHook,
};
use serde_json::{Value, json};

use super::{CommandError, cdi_names};
use crate::cli::{CdiCommand, CdiForm};
use crate::exit::ExitCode;
use crate::installation::hook_beside_this_program;
use crate::log;
use crate::planner;

/// An error that prevents a CDI specification from being generated or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CdiError {
    #[error("cannot write the specifications; run this as root, or name another --output")]
    Directory(#[from] DirectoryError),
    #[error("{} does not exist, which the specifications name as the hook", .0.display())]
    NoHook(PathBuf),
    #[error("no device of the specifications is named `{name}`; {hint}")]
    NoDevice { name: String, hint: String },
    #[error("cannot print a specification")]
    Print(#[from] serde_json::Error),
}

/// The value of `--output` with which the specifications are printed.
const STANDARD_OUTPUT: &str = "-";

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

/// Writes the CDI specifications. A file whose content has not changed is not written again.
pub(super) fn run(
    command: &CdiCommand,
    json: bool,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let (classes, output, devices, all, form) = match command {
        CdiCommand::Generate {
            classes,
            output,
            devices,
            all,
            form,
        } => (classes, output, devices, *all, *form),
        CdiCommand::List { directory } => {
            return cdi_names::list(directory.as_deref(), json, config);
        }
    };
    let mut generated = generated(classes, all, form, config)?;
    if let Some(name) = find_unknown_device(&generated, devices) {
        let is_all = all || !classes.is_empty();
        let hint = describe_unknown_device(name, is_all, form, config)?;
        let name = name.clone();
        return Err(CdiError::NoDevice { name, hint }.into());
    }
    keep_devices(&mut generated, devices);
    if output.as_os_str() == STANDARD_OUTPUT {
        return print(&generated, json, config);
    }
    warn_of_disabled(classes, config)?;
    let is_whole = classes.is_empty() && devices.is_empty();
    if is_whole && !all {
        let before = named_before(output, &generated, form, config)?;
        generated.specifications.extend(before);
    }
    let is_old = |_: &str| is_whole;
    let unusable = generated.find_unusable_classes();
    let user = SpecificationOwner::People;
    let update = directory::update(output, &generated, user, &unusable, is_old, |text| {
        Some(directory::kind_without_parser(text))
    });
    let update = update.map_err(CdiError::from)?;
    let (conflicts, changes): (Vec<SpecificationChange>, Vec<SpecificationChange>) = update
        .changes
        .into_iter()
        .partition(|change| matches!(change, SpecificationChange::Conflict { .. }));
    let mut problems = find_problems(&generated, config);
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

/// Returns what the specifications lack, each with the reason.
fn find_problems(generated: &GeneratedSpecifications, config: &Config) -> Vec<Problem> {
    let omissions = generated.omissions.iter();
    omissions
        .map(|omission| match (omission, find_disabled(config)) {
            (Omission::Everything, Some(text)) => Problem {
                text,
                is_error: false,
            },
            _ => Problem::from_omission(omission),
        })
        .collect()
}

/// Returns a text about the classes that are not enabled and have devices, or `None` if there are
/// none. Virtual devices do not count.
fn find_disabled(config: &Config) -> Option<String> {
    let host = planner::open_host(config).ok()?;
    let sources = load::each_source(&config.classes).ok()?.into_iter();
    let classes = sources.filter_map(|source| config.class(&source.ok()?).ok());
    let disabled = classes.filter(|class| {
        let mut sources = class.spec.discover.iter();
        let is_found = sources.any(|source| source.count.is_none());
        let has_device = || !discover::devices(class, &host).devices.is_empty();
        !class.spec.enabled && is_found && has_device()
    });
    let names: Vec<String> = disabled.map(|class| class.name.to_string()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "no class that is enabled has a usable device on this host; others have devices, and \
             `boathook cdi generate {}` writes their names",
            names.join(" ")
        )
    })
}

/// Removes every device from the specifications that is not among `names`. Without names, all
/// devices stay.
fn keep_devices(generated: &mut GeneratedSpecifications, names: &[String]) {
    if names.is_empty() {
        return;
    }
    let whole = std::mem::take(&mut generated.specifications).into_iter();
    let parts = whole.filter_map(|one| {
        let kind = one.kind.clone();
        one.keep_devices(|device| names.iter().any(|name| is_named(&kind, device, name)))
    });
    generated.specifications = parts.collect();
}

/// Returns whether `name` is that of a device, with or without its kind.
fn is_named(kind: &str, device: &str, name: &str) -> bool {
    name == device || name.split_once('=') == Some((kind, device))
}

/// Returns the first of the names that no device of the specifications has.
fn find_unknown_device<'a>(
    generated: &GeneratedSpecifications,
    names: &'a [String],
) -> Option<&'a String> {
    let is_known = |name: &&String| find_kind(generated, name).is_some();
    names.iter().find(|name| !is_known(name))
}

/// Returns the kind of the device with this name.
fn find_kind<'a>(generated: &'a GeneratedSpecifications, name: &str) -> Option<&'a str> {
    let mut specifications = generated.specifications.iter();
    let with_device = specifications.find(|one| {
        let mut devices = one.device_names();
        devices.any(|device| is_named(&one.kind, device, name))
    });
    with_device.map(|one| one.kind.as_str())
}

/// Returns what to do about a device that no specification has. It may be one of a class that is
/// not enabled. `is_all` says whether such classes were generated too.
fn describe_unknown_device(
    name: &str,
    is_all: bool,
    form: CdiForm,
    config: &Config,
) -> Result<String, CommandError> {
    let list = "`boathook list --all` shows ids and indices";
    if is_all {
        return Ok(list.to_owned());
    }
    let every = generated(&[], true, form, config)?;
    Ok(match find_kind(&every, name) {
        Some(kind) => format!(
            "a class that is not enabled has {kind}={name}: name the class, or add --all",
            name = name.rsplit('=').next().unwrap_or(name)
        ),
        None => list.to_owned(),
    })
}

/// Prints the specifications in place of writing files. Nothing on the host is changed.
fn print(
    generated: &GeneratedSpecifications,
    json: bool,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let problems = find_problems(generated, config);
    problems.iter().for_each(Problem::report);
    if json {
        let texts: Vec<&str> = problems.iter().map(|problem| &*problem.text).collect();
        let specifications = &generated.specifications;
        super::print_json(&json!({ "specifications": specifications, "problems": texts }))?;
    } else {
        for specification in &generated.specifications {
            let text = serde_json::to_string_pretty(specification).map_err(CdiError::from)?;
            report(&text);
        }
    }
    let has_error = problems.iter().any(|problem| problem.is_error);
    Ok(if has_error {
        ExitCode::Config
    } else {
        ExitCode::Success
    })
}

/// Warns about named classes that are not enabled. boathook-cdi.service, which runs at boot,
/// names no classes, so it writes only the specifications of enabled classes.
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

/// Returns the specifications of classes that are not enabled but have a file in `output`,
/// because an earlier command named them. A class that config.toml disables is left out.
fn named_before(
    output: &Path,
    enabled: &GeneratedSpecifications,
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

/// Generates the specifications of the named classes. Without names, the specifications are
/// those of the enabled classes, or of every class if `all` is set.
fn generated(
    names: &[ClassName],
    all: bool,
    form: CdiForm,
    config: &Config,
) -> Result<GeneratedSpecifications, CommandError> {
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
                config: None,
            }),
            host_root: &config.host_root,
        },
    };
    let sources = load::each_source(&config.classes)?;
    super::known_classes(names, sources.iter().flatten())?;
    let is_wanted = |source: &ClassSource| names.is_empty() || names.contains(&source.name);
    let classes = sources.into_iter().filter_map(|source| match source {
        // An error in one class does not prevent the specifications of the other classes.
        Ok(source) => Some(config.class(&source)).filter(|class| match class {
            Ok(class) => all || class.spec.enabled || names.contains(&class.name),
            Err(_) => is_wanted(&source),
        }),
        Err(error) => Some(Err(error)),
    });
    Ok(generator.generate(classes, &host))
}

fn in_json(change: &SpecificationChange) -> Value {
    match change {
        SpecificationChange::Wrote {
            path,
            kind,
            devices,
            names,
        } => json!({ "wrote": path, "kind": kind, "devices": devices, "names": names }),
        SpecificationChange::Removed(path) => json!({ "removed": path }),
        SpecificationChange::Conflict { kind, other, .. } => {
            json!({ "conflict": other, "kind": kind })
        }
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

/// Prints a line and ignores errors: the remaining specifications are written even if the
/// reader of the output has closed it.
fn report(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}
