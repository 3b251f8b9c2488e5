//! `boathook cdi generate`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use device_class::DeviceClass;
use device_class::cdi::{
    CdiName, ContainerEdits, FILE_PREFIX, GrantingHook, Specification, SpecifiedDevice,
};
use device_class::config::Config;
use device_class::discover::{self, Device, Found};
use device_class::host::RealHost;
use device_class::load::{self, ClassSource};
use device_class::name::ClassName;
use device_class::plan::{self, Asked, Authority, InjectionPlan, SpecDevices};
use device_class::request::{Environment, Request, RequestSource};

use super::CommandError;
use crate::cli::CdiForm;
use crate::exit::ExitCode;
use crate::log;
use crate::planner::{self, PlannerError};

/// How long `--watch` waits between scans.
const SCAN_INTERVAL: Duration = Duration::from_secs(5);

/// The name of a kind's device that stands for all.
const ALL: &str = "all";

/// What to generate.
pub(super) struct Generate<'a> {
    /// The classes; none stands for all.
    pub classes: &'a [ClassName],
    pub directory: &'a Path,
    pub form: CdiForm,
    pub config: &'a Config,
}

/// Why a specification could not be made or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CdiError {
    #[error("cannot create the directory {}", path.display())]
    Directory {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("cannot read the directory {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("cannot write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("cannot remove {}", path.display())]
    Remove {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("the path of this program is not known")]
    Program(#[source] io::Error),
}

impl Generate<'_> {
    /// Writes the specifications once. An unchanged file is not written again.
    pub(super) fn once(&self) -> Result<ExitCode, CommandError> {
        let (written, code) = self.update()?;
        if written == 0 {
            report("nothing has changed");
        }
        Ok(code)
    }

    /// Writes what has changed. The first value is the number of files.
    fn update(&self) -> Result<(usize, ExitCode), CommandError> {
        let (specifications, mut code) = self.specifications()?;
        // The devices of a class that cannot be used now are not known to be gone.
        let is_complete = self.classes.is_empty() && code == ExitCode::Success;
        if specifications.is_empty() {
            log::warning("no class has a usable device on this host; see `boathook list`");
        }
        let mut changed = 0;
        let kinds = read_kinds(self.directory)?;
        let mut kept = Vec::new();
        for specification in &specifications {
            let name = specification.file_name();
            let path = self.directory.join(&name);
            let mut others = kinds.iter().filter(|(file, kind)| {
                **kind == specification.kind && file.file_name() != Some(OsStr::new(&name))
            });
            if let Some((file, kind)) = others.next() {
                log::error(&format!(
                    "{kind} is left out: {} describes devices of this kind, and engines refuse \
                     a device that two files describe; remove the file, or name other classes",
                    file.display()
                ));
                code = ExitCode::Config;
                continue;
            }
            let text = format!("{}\n", serde_json::to_string_pretty(specification)?);
            if fs::read_to_string(&path).is_ok_and(|present| present == text) {
                kept.push(path);
                continue;
            }
            write(self.directory, &path, &text)?;
            changed += 1;
            report(&format!(
                "wrote {}: {} devices of {}",
                path.display(),
                specification.devices.len(),
                specification.kind
            ));
            kept.push(path);
        }
        if is_complete {
            for path in kinds
                .keys()
                .filter(|path| is_ours(path) && !kept.contains(path))
            {
                fs::remove_file(path).map_err(|error| CdiError::Remove {
                    path: path.clone(),
                    error,
                })?;
                changed += 1;
                report(&format!("removed {}: no such devices", path.display()));
            }
        }
        Ok((changed, code))
    }

    /// Writes the specifications, and again after each change, until the process ends.
    pub(super) fn watch(&self) -> Result<ExitCode, CommandError> {
        loop {
            self.update()?;
            sleep(SCAN_INTERVAL);
        }
    }

    fn specifications(&self) -> Result<(Vec<Specification>, ExitCode), CommandError> {
        let config = self.config;
        let host = planner::open_host(config)?;
        let mut code = ExitCode::Success;
        let mut kinds: BTreeMap<String, Vec<SpecifiedDevice>> = BTreeMap::new();
        let sources = load::each_source(&config.classes)?;
        super::known_classes(self.classes, sources.iter().flatten())?;
        let is_asked =
            |source: &ClassSource| self.classes.is_empty() || self.classes.contains(&source.name);
        for source in sources {
            if source.as_ref().is_ok_and(|source| !is_asked(source)) {
                continue;
            }
            let devices = source
                .and_then(|source| config.class(&source))
                .map_err(CommandError::from)
                .and_then(|class| self.devices_of(&class, &host));
            match devices {
                Ok(devices) => {
                    for (kind, device) in devices {
                        kinds.entry(kind).or_default().push(device);
                    }
                }
                Err(error) => {
                    log::error(&format!("class left out: {}", log::chain(&error)));
                    code = ExitCode::Config;
                }
            }
        }
        let specifications = kinds
            .into_iter()
            .map(|(kind, devices)| Specification::new(kind, devices));
        Ok((specifications.collect(), code))
    }

    /// The devices of one class, each with its kind: under its id, under its index,
    /// and all of a kind together.
    fn devices_of(
        &self,
        class: &DeviceClass,
        host: &RealHost,
    ) -> Result<Vec<(String, SpecifiedDevice)>, CommandError> {
        if class.spec.allocate.cdi.is_some() {
            log::warning(&format!(
                "class {} is left out: it names the CDI devices of another vendor's \
                 specification (allocate.cdi)",
                class.name
            ));
            return Ok(Vec::new());
        }
        let defaults = &class.spec.request.default_capabilities;
        let capabilities = defaults.iter().cloned().collect();
        let found = discover::look_up(class, self.config, &capabilities, host)
            .map_err(PlannerError::from)?;
        let (healthy, ill): (Vec<&Device>, Vec<&Device>) = found
            .inventory
            .devices
            .iter()
            .partition(|device| device.health.is_healthy());
        for device in ill {
            log::warning(&format!("{} is left out: {}", device.id, device.health));
        }
        let mut specified: Vec<(String, SpecifiedDevice)> = Vec::new();
        let mut kinds: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for device in healthy {
            let kind = device.resource.as_str();
            kinds.entry(kind).or_default().push(device.id.as_str());
            let names = [Some(device.id.as_str()), device.index.as_deref()];
            let mut names: Vec<&str> = names.into_iter().flatten().collect();
            names.dedup();
            for name in names {
                // An index may be another device's id.
                let is_it =
                    |(of, known): &(String, SpecifiedDevice)| *of == kind && known.name == name;
                if specified.iter().any(is_it) {
                    continue;
                }
                specified.extend(self.device(class, &found, kind, name, device.id.as_str())?);
            }
        }
        for (kind, ids) in kinds {
            specified.extend(self.device(class, &found, kind, ALL, &ids.join(","))?);
        }
        Ok(specified)
    }

    /// A device of a specification, if it can have this name there.
    fn device(
        &self,
        class: &DeviceClass,
        found: &Found,
        kind: &str,
        name: &str,
        devices: &str,
    ) -> Result<Option<(String, SpecifiedDevice)>, CommandError> {
        if let Err(error) = CdiName::try_from(format!("{kind}={name}")) {
            log::warning(&format!(
                "{name} of class {} is left out: {error}",
                class.name
            ));
            return Ok(None);
        }
        let Some(plan) = plan_of(class, found, devices)? else {
            return Ok(None);
        };
        let container_edits = match self.form {
            CdiForm::Thin => {
                // `all` stays right when devices come and go.
                let granted = if name == ALL { ALL } else { devices };
                let hook = GrantingHook {
                    program: &this_program()?,
                    grant: &format!("{}={granted}", class.name),
                    timeout: runtime_config::HOOK_TIMEOUT,
                };
                ContainerEdits::thin(&plan, &self.config.host_root, hook)
            }
            CdiForm::Plain => {
                let (edits, lacking) = ContainerEdits::plain(&plan, &self.config.host_root);
                if name == ALL && !lacking.is_empty() {
                    let lacking = lacking.into_iter().collect::<Vec<_>>().join(", ");
                    log::warning(&format!("the plain form of {kind} lacks: {lacking}"));
                }
                edits
            }
        };
        let device = SpecifiedDevice {
            name: name.to_owned(),
            container_edits,
        };
        let is_empty = device.container_edits.is_empty();
        Ok((!is_empty).then(|| (kind.to_owned(), device)))
    }
}

fn plan_of(
    class: &DeviceClass,
    found: &Found,
    devices: &str,
) -> Result<Option<InjectionPlan>, CommandError> {
    let source = RequestSource::Cdi {
        devices: devices.to_owned(),
    };
    let request =
        Request::parse(class, &Environment::default(), source).map_err(PlannerError::from)?;
    let Some(request) = request else {
        return Ok(None);
    };
    let asked = Asked {
        class,
        request: &request,
        found,
        authority: &Authority::Asker {
            why: "a specification is made for it".into(),
        },
    };
    let plan = plan::plan(&[asked], &SpecDevices::default());
    Ok(Some(plan.map_err(PlannerError::from)?))
}

/// This program, by a path that an upgrade keeps.
fn this_program() -> Result<PathBuf, CdiError> {
    let program = std::env::current_exe().map_err(CdiError::Program)?;
    let lasting = Path::new(runtime_config::INSTALLED_HOOK);
    let is_same = fs::canonicalize(lasting).is_ok_and(|path| path == program);
    Ok(if is_same { lasting.to_owned() } else { program })
}

fn is_ours(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with(FILE_PREFIX) && name.ends_with(".json")
}

/// The specification files in a directory, with their kinds. A file that cannot be
/// read as one concerns the engines alone.
fn read_kinds(directory: &Path) -> Result<BTreeMap<PathBuf, String>, CdiError> {
    let mut kinds = BTreeMap::new();
    let failed = |error| CdiError::Read {
        path: directory.to_owned(),
        error,
    };
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(kinds),
        entries => entries.map_err(failed)?,
    };
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let is_specification = path
            .extension()
            .is_some_and(|extension| extension == "json" || extension == "yaml");
        let kind = is_specification
            .then(|| fs::read_to_string(&path).ok())
            .flatten()
            .and_then(|text| kind_in(&text));
        kinds.extend(kind.map(|kind| (path, kind)));
    }
    Ok(kinds)
}

/// The value of the key `kind` of a specification in JSON or YAML.
fn kind_in(text: &str) -> Option<String> {
    if let Ok(value) = serde_json::from_str::<serde_json::Value>(text) {
        return value.get("kind")?.as_str().map(str::to_owned);
    }
    let mut values = text.lines().filter_map(|line| line.strip_prefix("kind:"));
    let value = values.next()?.trim().trim_matches(['"', '\'']);
    Some(value.to_owned())
}

/// Prints a line. A reader that has gone away does not end the work halfway.
fn report(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Creates a file that every engine can read. What is left of an earlier run is
/// removed; a link that somebody else made there is not followed.
fn create(path: &Path, text: &str) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o644);
    let file = match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            options.open(path)
        }
        file => file,
    };
    file?.write_all(text.as_bytes())
}

/// Replaces a file as a whole. Engines read only `*.json` and `*.yaml`, so that they
/// do not see the temporary one.
fn write(directory: &Path, path: &Path, text: &str) -> Result<(), CdiError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o755);
    builder
        .create(directory)
        .map_err(|error| CdiError::Directory {
            path: directory.to_owned(),
            error,
        })?;
    let temporary = path.with_extension("tmp");
    let written = create(&temporary, text).and_then(|()| fs::rename(&temporary, path));
    written.map_err(|error| {
        // A half-written file would stay behind.
        let _ = fs::remove_file(&temporary);
        CdiError::Write {
            path: path.to_owned(),
            error,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_at_the_temporary_file_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let victim = directory.path().join("victim");
        fs::write(&victim, "kept").unwrap();
        let path = directory.path().join("boathook-a.com-b.json");
        std::os::unix::fs::symlink(&victim, path.with_extension("tmp")).unwrap();
        write(directory.path(), &path, "text").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");
        assert!(path.symlink_metadata().unwrap().is_file());
    }

    #[test]
    fn the_kind_of_a_specification_is_found() {
        for (text, kind) in [
            (
                r#"{"cdiVersion": "0.5.0", "kind": "a.com/b"}"#,
                Some("a.com/b"),
            ),
            (
                "cdiVersion: 0.5.0\nkind: a.com/b\ndevices:\n",
                Some("a.com/b"),
            ),
            ("kind: \"a.com/b\"\n", Some("a.com/b")),
            ("devices:\n- kind: a.com/b\n", None),
            ("{}", None),
            ("", None),
        ] {
            assert_eq!(kind_in(text).as_deref(), kind, "{text}");
        }
    }
}
