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
use hook::exit::ExitCode;
use hook::installation::adjacent_hook_path;
use hook::log;
use hook::planner;
use injection_plan::cdi::directory::{self, DirectoryError, SpecificationChange};
use injection_plan::cdi::{
    CdiHookOptions, GeneratedSpecifications, Generator, Omission, Specification, SpecificationForm,
    SpecificationOwner,
};
use serde_json::{Value, json};

use super::{CommandError, cdi_names};
use crate::cli::{CdiCommand, CdiSpecStyle};

#[derive(Debug, thiserror::Error)]
pub(crate) enum CdiError {
    #[error("cannot write the specifications; run this as root, or name another --output")]
    OutputDirectory(#[from] DirectoryError),
    #[error("cannot find the absolute path of the configuration")]
    ConfigPath(#[source] io::Error),
    #[error("the directories of the installation")]
    InstalledDirectories(#[source] FileError),
    #[error("{} does not exist, which the specifications name as the hook", .0.display())]
    MissingHookProgram(PathBuf),
    #[error("no device of the specifications is named `{name}`; {hint}")]
    UnknownDevice { name: String, hint: String },
    #[error("cannot print a specification")]
    PrintJson(#[from] serde_json::Error),
}

/// The value of `--output` for which the specifications are printed and no file is written.
const STDOUT_ARGUMENT: &str = "-";

struct GenerationProblem {
    text: String,
    /// True if `boathook cdi generate` returns `ExitCode::Config` because of this problem.
    is_error: bool,
}

impl GenerationProblem {
    fn from_omission(omission: &Omission) -> Self {
        GenerationProblem {
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

/// The form of the specifications.
#[derive(Clone, Copy)]
struct SpecificationSettings<'a> {
    style: CdiSpecStyle,
    /// The configuration file that the user named with `--config`. The hook of the specifications
    /// reads the same file.
    config_path: Option<&'a Path>,
}

/// Implements `boathook cdi generate` and `boathook cdi list`. `generate` writes the CDI
/// specifications that have changed, or prints all of them with `--output -`.
pub(super) fn run(
    command: &CdiCommand,
    as_json: bool,
    config: &Config,
    config_path: Option<&Path>,
) -> Result<ExitCode, CommandError> {
    let (class_names, output_dir, device_names, include_all_classes, style) = match command {
        CdiCommand::Generate {
            classes: class_names,
            output_dir,
            devices: device_names,
            include_all_classes,
            spec_style,
        } => (
            class_names,
            output_dir,
            device_names,
            *include_all_classes,
            *spec_style,
        ),
        CdiCommand::List { directory } => {
            return cdi_names::print_device_names(directory.as_deref(), as_json, config);
        }
    };
    // The hook is called in another working directory.
    let config_path = config_path.map(std::path::absolute).transpose();
    let config_path = config_path.map_err(CdiError::ConfigPath)?;
    let settings = SpecificationSettings {
        style,
        config_path: config_path.as_deref(),
    };
    let mut generation_result =
        generate_specifications(class_names, include_all_classes, settings, config)?;
    if let Some(name) = find_unknown_device_name(&generation_result, device_names) {
        let has_searched_all_classes = include_all_classes || !class_names.is_empty();
        let hint = unknown_device_hint(name, has_searched_all_classes, settings, config)?;
        let name = name.clone();
        return Err(CdiError::UnknownDevice { name, hint }.into());
    }
    retain_selected_devices(&mut generation_result, device_names);
    if output_dir.as_os_str() == STDOUT_ARGUMENT {
        return print_specifications(&generation_result, as_json, config);
    }
    warn_about_disabled_classes(class_names, config)?;
    let covers_all_classes = class_names.is_empty() && device_names.is_empty();
    if covers_all_classes && !include_all_classes {
        let earlier_specifications =
            regenerate_earlier_specifications(output_dir, &generation_result, settings, config)?;
        generation_result
            .specifications
            .extend(earlier_specifications);
    }
    // If the user names classes or devices, the command must not remove the specifications of other
    // classes.
    let is_obsolete = |_: &str| covers_all_classes;
    let unusable_classes = generation_result.find_unusable_classes();
    let owner = SpecificationOwner::User;
    let directory_update = directory::update(
        output_dir,
        &generation_result,
        owner,
        &unusable_classes,
        is_obsolete,
        |text| Some(directory::scan_yaml_kind(text)),
    );
    let directory_update = directory_update.map_err(CdiError::from)?;
    let (conflicts, changes): (Vec<SpecificationChange>, Vec<SpecificationChange>) =
        directory_update
            .changes
            .into_iter()
            .partition(|change| matches!(change, SpecificationChange::Conflict { .. }));
    let mut problems = describe_omissions(&generation_result, config);
    problems.extend(conflicts.iter().map(|conflict| GenerationProblem {
        text: conflict.to_string(),
        is_error: true,
    }));
    problems.extend(
        directory_update
            .failures
            .iter()
            .map(|(kind, error)| GenerationProblem {
                text: format!("{kind} is left out: {}", log::format_error_chain(error)),
                is_error: true,
            }),
    );
    let removal_failures = directory_update.removal_failures.iter();
    problems.extend(removal_failures.map(|error| GenerationProblem {
        text: log::format_error_chain(error),
        is_error: true,
    }));
    if !as_json {
        for change in &changes {
            print_line_to_stdout(&change.to_string());
        }
    }
    problems.iter().for_each(GenerationProblem::log);
    if as_json {
        let changes: Vec<Value> = changes.iter().map(change_to_json).collect();
        let problem_texts: Vec<&str> = problems.iter().map(|problem| &*problem.text).collect();
        super::print_json(&json!({ "changes": changes, "problems": problem_texts }))?;
    } else if changes.is_empty() {
        print_line_to_stdout("nothing has changed");
    }
    Ok(to_exit_code(&problems))
}

fn to_exit_code(problems: &[GenerationProblem]) -> ExitCode {
    if problems.iter().any(|problem| problem.is_error) {
        ExitCode::Config
    } else {
        ExitCode::Success
    }
}

/// Returns a problem for each class or device that is missing in the specifications. The text of
/// the problem says why the class or device was left out.
fn describe_omissions(
    generation_result: &GeneratedSpecifications,
    config: &Config,
) -> Vec<GenerationProblem> {
    generation_result
        .omissions
        .iter()
        .map(
            |omission| match (omission, describe_disabled_classes(config)) {
                (Omission::NoUsableDevice, Some(text)) => GenerationProblem {
                    text,
                    is_error: false,
                },
                _ => GenerationProblem::from_omission(omission),
            },
        )
        .collect()
}

/// Returns a message with the disabled classes for which this host has devices. Returns `None` if
/// there are no such classes. Classes of virtual devices are ignored, because every host has
/// virtual devices.
fn describe_disabled_classes(config: &Config) -> Option<String> {
    let host = planner::open_host(config).ok()?;
    let class_sources = load::read_each_source(&config.classes).ok()?.into_iter();
    let classes = class_sources.filter_map(|source| config.class(&source.ok()?).ok());
    let disabled_classes = classes.filter(|class| {
        let mut discovery_sources = class.spec.discover.iter();
        let has_hardware_source =
            discovery_sources.any(|source| source.virtual_device_count.is_none());
        let has_device = || !discover::find_devices(class, &host).devices.is_empty();
        !class.spec.is_enabled && has_hardware_source && has_device()
    });
    let class_names: Vec<String> = disabled_classes
        .map(|class| class.name.to_string())
        .collect();
    (!class_names.is_empty()).then(|| {
        format!(
            "no class that is enabled has a usable device on this host; others have devices, and \
             `boathook cdi generate {}` writes their names",
            class_names.join(" ")
        )
    })
}

/// Removes the devices whose names are not in `selected_names` from the specifications. If
/// `selected_names` is empty, no device is removed.
fn retain_selected_devices(
    generation_result: &mut GeneratedSpecifications,
    selected_names: &[String],
) {
    if selected_names.is_empty() {
        return;
    }
    generation_result.specifications = std::mem::take(&mut generation_result.specifications)
        .into_iter()
        .filter_map(|specification| {
            let kind = specification.kind.clone();
            specification.filter_devices(|device| {
                selected_names
                    .iter()
                    .any(|name| matches_device_name(&kind, device, name))
            })
        })
        .collect();
}

/// Returns whether `requested_name`, which a user wrote as `DEVICE` or `KIND=DEVICE`, names the
/// device `device` of the CDI kind `kind`.
fn matches_device_name(kind: &str, device: &str, requested_name: &str) -> bool {
    requested_name == device || requested_name.split_once('=') == Some((kind, device))
}

/// Returns the first of `requested_names` that names no device of the specifications.
fn find_unknown_device_name<'a>(
    generation_result: &GeneratedSpecifications,
    requested_names: &'a [String],
) -> Option<&'a String> {
    let has_device = |name: &&String| find_device_kind(generation_result, name).is_some();
    requested_names.iter().find(|name| !has_device(name))
}

/// Returns the CDI kind of the first device to which `name` refers. `name` has the form `DEVICE` or
/// `KIND=DEVICE`, such as `example.com/npu=0`.
fn find_device_kind<'a>(
    generation_result: &'a GeneratedSpecifications,
    name: &str,
) -> Option<&'a str> {
    let mut specifications = generation_result.specifications.iter();
    let specification = specifications.find(|specification| {
        let mut devices = specification.device_names();
        devices.any(|device| matches_device_name(&specification.kind, device, name))
    })?;
    Some(&specification.kind)
}

/// Returns a hint for a user who gave a device name that no specification contains. The device may
/// belong to a disabled class. `has_searched_all_classes` is true if the command has already
/// searched the disabled classes.
fn unknown_device_hint(
    name: &str,
    has_searched_all_classes: bool,
    settings: SpecificationSettings<'_>,
    config: &Config,
) -> Result<String, CommandError> {
    let list_hint = "`boathook list --all` shows ids and indices";
    if has_searched_all_classes {
        return Ok(list_hint.to_owned());
    }
    let all_specifications = generate_specifications(&[], true, settings, config)?;
    Ok(match find_device_kind(&all_specifications, name) {
        Some(kind) => format!(
            "a class that is not enabled has {kind}={name}: name the class, or add --all",
            name = name.rsplit('=').next().unwrap_or(name)
        ),
        None => list_hint.to_owned(),
    })
}

/// Prints the specifications as JSON, for `--output -`. Changes no file of the host.
fn print_specifications(
    generation_result: &GeneratedSpecifications,
    as_json: bool,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let problems = describe_omissions(generation_result, config);
    problems.iter().for_each(GenerationProblem::log);
    if as_json {
        let texts: Vec<&str> = problems.iter().map(|problem| &*problem.text).collect();
        let specifications = &generation_result.specifications;
        super::print_json(&json!({ "specifications": specifications, "problems": texts }))?;
    } else {
        for specification in &generation_result.specifications {
            let text = serde_json::to_string_pretty(specification).map_err(CdiError::from)?;
            print_line_to_stdout(&text);
        }
    }
    Ok(to_exit_code(&problems))
}

/// Warns about the classes in `class_names` that are not enabled. boathook-cdi.service writes only
/// the specifications of enabled classes when the host boots.
fn warn_about_disabled_classes(
    class_names: &[ClassName],
    config: &Config,
) -> Result<(), CommandError> {
    for source in load::read_each_source(&config.classes)?.iter().flatten() {
        let name = &source.name;
        let is_disabled = || {
            config
                .class(source)
                .is_ok_and(|class| !class.spec.is_enabled)
        };
        if class_names.contains(name) && is_disabled() {
            log::warning(&format!(
                "{name} is not enabled: boathook-cdi.service writes its names after a boot only if \
                 config.toml has [class.{name}] with enabled = true"
            ));
        }
    }
    Ok(())
}

/// Returns the specifications of the classes that are not enabled but have a file in `output_dir`,
/// because an earlier `boathook cdi generate CLASS` wrote it. Leaves out classes that config.toml
/// disables explicitly.
fn regenerate_earlier_specifications(
    output_dir: &Path,
    enabled_specifications: &GeneratedSpecifications,
    settings: SpecificationSettings<'_>,
    config: &Config,
) -> Result<Vec<Specification>, CommandError> {
    let is_disabled = |name: &ClassName| {
        let class = config.class.get(name);
        class.is_some_and(|class| class.is_enabled == Some(false))
    };
    let sources = load::read_each_source(&config.classes)?;
    let class_names: Vec<ClassName> = sources
        .into_iter()
        .flatten()
        .map(|source| source.name)
        .filter(|name| !is_disabled(name))
        .collect();
    let mut specifications =
        generate_specifications(&class_names, false, settings, config)?.specifications;
    specifications.retain(|specification| {
        let mut enabled_kinds = enabled_specifications
            .specifications
            .iter()
            .map(|enabled_specification| &enabled_specification.kind);
        !enabled_kinds.any(|kind| *kind == specification.kind)
            && output_dir.join(specification.file_name()).exists()
    });
    Ok(specifications)
}

/// Generates the specifications of the classes `class_names`. An empty list stands for all enabled
/// classes or, with `include_all_classes`, for all classes.
fn generate_specifications(
    class_names: &[ClassName],
    include_all_classes: bool,
    settings: SpecificationSettings<'_>,
    config: &Config,
) -> Result<GeneratedSpecifications, CommandError> {
    let host = planner::open_host(config)?;
    let hook_path = match settings.style {
        CdiSpecStyle::Thin => Some(find_hook_program()?),
        CdiSpecStyle::Plain => None,
    };
    let generator = Generator {
        selected_classes: class_names,
        form: SpecificationForm {
            hook: hook_path.as_deref().map(|program_path| CdiHookOptions {
                program_path,
                timeout_seconds: runtime_config::HOOK_TIMEOUT_SECONDS,
                config_path: settings.config_path,
            }),
            host_root: &config.host_root,
        },
    };
    let sources = load::read_each_source(&config.classes)?;
    super::check_class_names(class_names, sources.iter().flatten())?;
    let is_selected =
        |source: &ClassSource| class_names.is_empty() || class_names.contains(&source.name);
    let classes = sources.into_iter().filter_map(|source| match source {
        // An error in one class does not prevent the specifications of the other classes.
        Ok(source) => Some(config.class(&source)).filter(|class| match class {
            Ok(class) => {
                include_all_classes || class.spec.is_enabled || class_names.contains(&class.name)
            }
            Err(_) => is_selected(&source),
        }),
        Err(error) => Some(Err(error)),
    });
    Ok(generator.generate(classes, &host))
}

fn change_to_json(change: &SpecificationChange) -> Value {
    match change {
        SpecificationChange::Written {
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

/// Returns the path of the hook program, which is in the same directory as this program. If the
/// program is installed, the path contains the link `current` to the installed version, and stays
/// valid after an upgrade.
fn find_hook_program() -> Result<PathBuf, CdiError> {
    let hook_path = adjacent_hook_path();
    if !hook_path.is_file() {
        return Err(CdiError::MissingHookProgram(hook_path));
    }
    let recorded_directories =
        InstalledDirectories::find(Path::new("/")).map_err(CdiError::InstalledDirectories)?;
    // In a cluster, boathook-init runs in a container and cannot record the directory of the
    // programs on the host. So it is derived from the hook's path:
    // DIRECTORY/VERSION/bin/boathook-hook.
    let own_directories = hook_path
        .ancestors()
        .nth(3)
        .map(|directory| InstalledDirectories {
            programs_dir: directory.to_owned(),
            ..InstalledDirectories::default()
        });
    let mut stable_paths = [Some(recorded_directories), own_directories]
        .into_iter()
        .flatten()
        .map(|directories| directories.hook_path());
    let installed_path =
        stable_paths.find(|path| fs::canonicalize(path).is_ok_and(|path| path == hook_path));
    Ok(installed_path.unwrap_or(hook_path))
}

/// Prints a line and ignores errors. If nobody reads stdout any longer, the remaining
/// specifications must still be written.
fn print_line_to_stdout(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}
