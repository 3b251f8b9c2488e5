//! Implements `boathook cdi generate`, which writes CDI specifications for users of Docker and
//! podman.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use device_class::config::{Config, InstalledDirectories};
use device_class::discover;
use device_class::load::{self, ClassSource};
use device_class::name::ClassName;
use device_class::strict_toml::FileError;
use injection_plan::cdi::directory::{self, DirectoryError, SpecificationChange};
use injection_plan::cdi::{
    Description, GeneratedSpecifications, Generator, Omission, Specification, SpecificationOwner,
    ThinHook,
};
use serde_json::{Value, json};

use super::{CommandError, cdi_names};
use crate::cli::{CdiCommand, CdiForm};
use crate::exit::ExitCode;
use crate::installation::adjacent_hook_path;
use crate::log;
use crate::planner;

/// An error that prevents a CDI specification from being generated or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CdiError {
    #[error("cannot write the specifications; run this as root, or name another --output")]
    Directory(#[from] DirectoryError),
    #[error("the directories of the installation")]
    Directories(#[source] FileError),
    #[error("{} does not exist, which the specifications name as the hook", .0.display())]
    NoHook(PathBuf),
    #[error("no device of the specifications is named `{name}`; {hint}")]
    NoDevice { name: String, hint: String },
    #[error("cannot print a specification")]
    Print(#[from] serde_json::Error),
}

/// The value of `--output` with which the specifications are printed and not written to files.
const STANDARD_OUTPUT: &str = "-";

struct Problem {
    text: String,
    /// True if the problem changes the exit code.
    is_error: bool,
}

impl Problem {
    fn from_omission(omission: &Omission) -> Self {
        Problem {
            text: log::format_error_chain(omission),
            is_error: omission.is_error(),
        }
    }

    fn log(&self) {
        if self.is_error {
            log::error(&self.text);
        } else {
            log::warning(&self.text);
        }
    }
}

/// Generates the CDI specifications and writes those that have changed.
pub(super) fn run(
    command: &CdiCommand,
    as_json: bool,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let (classes, output, devices, include_all, form) = match command {
        CdiCommand::Generate {
            classes,
            output,
            devices,
            all: include_all,
            form,
        } => (classes, output, devices, *include_all, *form),
        CdiCommand::List { directory } => {
            return cdi_names::list(directory.as_deref(), as_json, config);
        }
    };
    let mut generated = generate(classes, include_all, form, config)?;
    if let Some(name) = find_unknown_device(&generated, devices) {
        let searched_all = include_all || !classes.is_empty();
        let hint = describe_unknown_device(name, searched_all, form, config)?;
        let name = name.clone();
        return Err(CdiError::NoDevice { name, hint }.into());
    }
    retain_devices(&mut generated, devices);
    if output.as_os_str() == STANDARD_OUTPUT {
        return print_specifications(&generated, as_json, config);
    }
    warn_about_disabled_classes(classes, config)?;
    let is_unrestricted = classes.is_empty() && devices.is_empty();
    if is_unrestricted && !include_all {
        let earlier_specifications = find_earlier_specifications(output, &generated, form, config)?;
        generated.specifications.extend(earlier_specifications);
    }
    // A command that names classes or devices must not remove the specifications of other classes.
    let is_obsolete = |_: &str| is_unrestricted;
    let unusable_classes = generated.find_unusable_classes();
    let owner = SpecificationOwner::People;
    let update = directory::update(
        output,
        &generated,
        owner,
        &unusable_classes,
        is_obsolete,
        |text| Some(directory::scan_yaml_kind(text)),
    );
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
        text: format!("{kind} is left out: {}", log::format_error_chain(error)),
        is_error: true,
    }));
    if !as_json {
        for change in &changes {
            print_line(&change.to_string());
        }
    }
    problems.iter().for_each(Problem::log);
    if as_json {
        let changes: Vec<Value> = changes.iter().map(change_to_json).collect();
        let texts: Vec<&str> = problems.iter().map(|problem| &*problem.text).collect();
        super::print_json(&json!({ "changes": changes, "problems": texts }))?;
    } else if changes.is_empty() {
        print_line("nothing has changed");
    }
    Ok(exit_code(&problems))
}

fn exit_code(problems: &[Problem]) -> ExitCode {
    if problems.iter().any(|problem| problem.is_error) {
        ExitCode::Config
    } else {
        ExitCode::Success
    }
}

/// Returns a problem for each class or device that the specifications omit. Its text contains the
/// reason.
fn find_problems(generated: &GeneratedSpecifications, config: &Config) -> Vec<Problem> {
    generated
        .omissions
        .iter()
        .map(
            |omission| match (omission, describe_disabled_classes(config)) {
                (Omission::Everything, Some(text)) => Problem {
                    text,
                    is_error: false,
                },
                _ => Problem::from_omission(omission),
            },
        )
        .collect()
}

/// Returns a message about the disabled classes that have devices on this host, or `None` if there
/// are no such classes. Classes of virtual devices are ignored, because every host has their
/// devices.
fn describe_disabled_classes(config: &Config) -> Option<String> {
    let host = planner::open_host(config).ok()?;
    let sources = load::read_each_source(&config.classes).ok()?.into_iter();
    let classes = sources.filter_map(|source| config.class(&source.ok()?).ok());
    let disabled_classes = classes.filter(|class| {
        let mut discovery_sources = class.spec.discover.iter();
        let has_hardware_source = discovery_sources.any(|source| source.count.is_none());
        let has_device = || !discover::find_devices(class, &host).devices.is_empty();
        !class.spec.is_enabled && has_hardware_source && has_device()
    });
    let names: Vec<String> = disabled_classes
        .map(|class| class.name.to_string())
        .collect();
    (!names.is_empty()).then(|| {
        format!(
            "no class that is enabled has a usable device on this host; others have devices, and \
             `boathook cdi generate {}` writes their names",
            names.join(" ")
        )
    })
}

/// Removes the devices whose names are not in `names` from the specifications. If `names` is empty,
/// no device is removed.
fn retain_devices(generated: &mut GeneratedSpecifications, names: &[String]) {
    if names.is_empty() {
        return;
    }
    generated.specifications = std::mem::take(&mut generated.specifications)
        .into_iter()
        .filter_map(|specification| {
            let kind = specification.kind.clone();
            specification.keep_devices(|device| {
                names
                    .iter()
                    .any(|name| matches_device_name(&kind, device, name))
            })
        })
        .collect();
}

/// Returns whether `name` has the form `DEVICE` or `KIND=DEVICE` with these values.
fn matches_device_name(kind: &str, device: &str, name: &str) -> bool {
    name == device || name.split_once('=') == Some((kind, device))
}

/// Returns the first of `names` that no device of the specifications has.
fn find_unknown_device<'a>(
    generated: &GeneratedSpecifications,
    names: &'a [String],
) -> Option<&'a String> {
    let is_known = |name: &&String| find_device_kind(generated, name).is_some();
    names.iter().find(|name| !is_known(name))
}

/// Returns the CDI kind of the device with this name.
fn find_device_kind<'a>(generated: &'a GeneratedSpecifications, name: &str) -> Option<&'a str> {
    let mut specifications = generated.specifications.iter();
    let specification = specifications.find(|specification| {
        let mut devices = specification.device_names();
        devices.any(|device| matches_device_name(&specification.kind, device, name))
    })?;
    Some(&specification.kind)
}

/// Returns a hint for a user about a device name that no specification has. The device may belong
/// to a class that is not enabled, unless `searched_all` says that all classes were searched
/// already.
fn describe_unknown_device(
    name: &str,
    searched_all: bool,
    form: CdiForm,
    config: &Config,
) -> Result<String, CommandError> {
    let list_hint = "`boathook list --all` shows ids and indices";
    if searched_all {
        return Ok(list_hint.to_owned());
    }
    let all_specifications = generate(&[], true, form, config)?;
    Ok(match find_device_kind(&all_specifications, name) {
        Some(kind) => format!(
            "a class that is not enabled has {kind}={name}: name the class, or add --all",
            name = name.rsplit('=').next().unwrap_or(name)
        ),
        None => list_hint.to_owned(),
    })
}

/// Prints the specifications. No file on the host is changed.
fn print_specifications(
    generated: &GeneratedSpecifications,
    as_json: bool,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let problems = find_problems(generated, config);
    problems.iter().for_each(Problem::log);
    if as_json {
        let texts: Vec<&str> = problems.iter().map(|problem| &*problem.text).collect();
        let specifications = &generated.specifications;
        super::print_json(&json!({ "specifications": specifications, "problems": texts }))?;
    } else {
        for specification in &generated.specifications {
            let text = serde_json::to_string_pretty(specification).map_err(CdiError::from)?;
            print_line(&text);
        }
    }
    Ok(exit_code(&problems))
}

/// Warns about named classes that are not enabled. boathook-cdi.service, which runs at boot,
/// names no classes, so it writes only the specifications of enabled classes.
fn warn_about_disabled_classes(names: &[ClassName], config: &Config) -> Result<(), CommandError> {
    for source in load::read_each_source(&config.classes)?.iter().flatten() {
        let name = &source.name;
        let is_disabled = || {
            config
                .class(source)
                .is_ok_and(|class| !class.spec.is_enabled)
        };
        if names.contains(name) && is_disabled() {
            log::warning(&format!(
                "{name} is not enabled: boathook-cdi.service writes its names after a boot only if \
                 config.toml has [class.{name}] with enabled = true"
            ));
        }
    }
    Ok(())
}

/// Returns the specifications of classes that are not enabled but have a file in the directory
/// `output`, because an earlier command has named them. Classes that config.toml disables
/// explicitly are left out.
fn find_earlier_specifications(
    output: &Path,
    enabled_specifications: &GeneratedSpecifications,
    form: CdiForm,
    config: &Config,
) -> Result<Vec<Specification>, CommandError> {
    let is_disabled = |name: &ClassName| {
        let class = config.class.get(name);
        class.is_some_and(|class| class.is_enabled == Some(false))
    };
    let sources = load::read_each_source(&config.classes)?;
    let names: Vec<ClassName> = sources
        .into_iter()
        .flatten()
        .map(|source| source.name)
        .filter(|name| !is_disabled(name))
        .collect();
    let mut specifications = generate(&names, false, form, config)?.specifications;
    specifications.retain(|specification| {
        let mut enabled_kinds = enabled_specifications
            .specifications
            .iter()
            .map(|enabled_specifications| &enabled_specifications.kind);
        !enabled_kinds.any(|kind| *kind == specification.kind)
            && output.join(specification.file_name()).exists()
    });
    Ok(specifications)
}

/// Generates the specifications of the classes `names`. If `names` is empty, the specifications of
/// all enabled classes are generated, or of all classes if `include_all` is true.
fn generate(
    names: &[ClassName],
    include_all: bool,
    form: CdiForm,
    config: &Config,
) -> Result<GeneratedSpecifications, CommandError> {
    let host = planner::open_host(config)?;
    let hook = match form {
        CdiForm::Thin => Some(find_hook_program()?),
        CdiForm::Plain => None,
    };
    let generator = Generator {
        only_classes: names,
        description: Description {
            hook: hook.as_deref().map(|program| ThinHook {
                program,
                timeout: runtime_config::HOOK_TIMEOUT_SECONDS,
                config: None,
            }),
            host_root: &config.host_root,
        },
    };
    let sources = load::read_each_source(&config.classes)?;
    super::check_class_names(names, sources.iter().flatten())?;
    let is_selected = |source: &ClassSource| names.is_empty() || names.contains(&source.name);
    let classes = sources.into_iter().filter_map(|source| match source {
        // An error in one class does not prevent the specifications of the other classes.
        Ok(source) => Some(config.class(&source)).filter(|class| match class {
            Ok(class) => include_all || class.spec.is_enabled || names.contains(&class.name),
            Err(_) => is_selected(&source),
        }),
        Err(error) => Some(Err(error)),
    });
    Ok(generator.generate(classes, &host))
}

fn change_to_json(change: &SpecificationChange) -> Value {
    match change {
        SpecificationChange::Wrote {
            path,
            kind,
            devices,
            names,
        } => json!({ "wrote": path, "kind": kind, "devices": devices, "names": names }),
        SpecificationChange::Removed(path) => json!({ "removed": path }),
        SpecificationChange::Conflict {
            kind, other_path, ..
        } => {
            json!({ "conflict": other_path, "kind": kind })
        }
    }
}

/// Returns the path of the hook's program in the directory of this program. For an installed hook,
/// this is the path that stays valid after an upgrade.
fn find_hook_program() -> Result<PathBuf, CdiError> {
    let hook_path = adjacent_hook_path();
    if !hook_path.is_file() {
        return Err(CdiError::NoHook(hook_path));
    }
    let directories = InstalledDirectories::find(Path::new("/"));
    let stable_path = directories.map_err(CdiError::Directories)?.hook_path();
    let is_installed_hook = fs::canonicalize(&stable_path).is_ok_and(|path| path == hook_path);
    Ok(if is_installed_hook {
        stable_path
    } else {
        hook_path
    })
}

/// Prints a line and ignores errors, so that the remaining specifications are written even if
/// nobody reads stdout any longer.
fn print_line(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}
