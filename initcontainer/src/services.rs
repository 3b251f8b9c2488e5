//! Plans the systemd units of Boathook on a host.
//!
//! An installation writes the units that no package has installed, so that `systemctl enable` works
//! after every kind of installation. It does not enable these units, unless `--cdi`, `--facts`,
//! `--follow` or `--plugin-service` is given. These options make the link that `systemctl enable`
//! would make. Only the timer for facts is also enabled without its option
//! ([`crate::fact_programs`]).
//! `uninstall` disables all units, no matter who enabled them, because their programs are removed.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use device_class::config::InstalledDirectories;
use runtime_config::{Change, scratch_path};

use crate::host::Host;
use crate::layout::SYSTEMD_UNITS_DIR;
use crate::plugin_argument::PluginArgument;
use crate::service::Service;
use crate::step::Step;

/// The directories to which packages and `make install` write units.
const PACKAGED_UNIT_DIRS: [&str; 3] = [
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];
/// The directories to which packages and `make install` write udev rules.
const PACKAGED_RULES_DIRS: [&str; 3] = [
    "/usr/local/lib/udev/rules.d",
    "/usr/lib/udev/rules.d",
    "/lib/udev/rules.d",
];
const UDEV_RULES_DIR: &str = "/etc/udev/rules.d";
const UNIT_FILE_MODE: u32 = 0o644;
/// The first line of every unit or rules file that an installation writes. If a file has another
/// first line, `uninstall` keeps the file.
const MANAGED_FILE_HEADER: &str = "# Written by boathook-init, which also removes it. Settings of your own belong in a drop-in.\n";

/// The way in which an engine comes to call the hook for the containers of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HookDelivery {
    /// The engine calls the hook because the container has CDI names.
    Cdi,
    /// The pods name a runtime handler that the installer has configured.
    RuntimeHandler,
}

/// The parts of the plugin's command line that differ between hosts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PluginCommand<'a> {
    pub(crate) delivery: HookDelivery,
    /// The arguments of the operator (`--plugin-arg`).
    pub(crate) arguments: &'a [PluginArgument],
}

/// A command in the plugin's unit that is needed only if the hook is called by CDI. With a runtime
/// handler it is left out of the unit, together with the comment line above it
/// ([`CHECK_ENGINE_COMMENT`]).
const CHECK_ENGINE_COMMAND: &str = "boathook-plugin check-engine";
const CHECK_ENGINE_COMMENT: &str =
    "# An engine that ignores CDI annotations would start containers without their devices.";

/// A file that an installation writes: a systemd unit, or a file that belongs to a unit.
struct ServiceFile {
    directory: &'static str,
    name: &'static str,
    text: &'static str,
    /// The directories in which a package may have installed the same file.
    package_dirs: &'static [&'static str],
}

const SERVICE_FILES: [ServiceFile; 8] = [
    ServiceFile {
        directory: SYSTEMD_UNITS_DIR,
        name: "boathook-cdi.service",
        text: include_str!("../../dist/systemd/boathook-cdi.service"),
        package_dirs: &PACKAGED_UNIT_DIRS,
    },
    ServiceFile {
        directory: SYSTEMD_UNITS_DIR,
        name: "boathook-cdi.timer",
        text: include_str!("../../dist/systemd/boathook-cdi.timer"),
        package_dirs: &PACKAGED_UNIT_DIRS,
    },
    ServiceFile {
        directory: SYSTEMD_UNITS_DIR,
        name: "boathook-facts.service",
        text: include_str!("../../dist/systemd/boathook-facts.service"),
        package_dirs: &PACKAGED_UNIT_DIRS,
    },
    ServiceFile {
        directory: SYSTEMD_UNITS_DIR,
        name: "boathook-facts.timer",
        text: include_str!("../../dist/systemd/boathook-facts.timer"),
        package_dirs: &PACKAGED_UNIT_DIRS,
    },
    ServiceFile {
        directory: SYSTEMD_UNITS_DIR,
        name: "boathook-follow.service",
        text: include_str!("../../dist/systemd/boathook-follow.service"),
        package_dirs: &PACKAGED_UNIT_DIRS,
    },
    ServiceFile {
        directory: SYSTEMD_UNITS_DIR,
        name: "boathook-plugin.service",
        text: include_str!("../../dist/systemd/boathook-plugin.service"),
        package_dirs: &PACKAGED_UNIT_DIRS,
    },
    ServiceFile {
        directory: UDEV_RULES_DIR,
        name: "71-boathook-cdi.rules",
        text: include_str!("../../dist/systemd/71-boathook-cdi.rules"),
        package_dirs: &PACKAGED_RULES_DIRS,
    },
    ServiceFile {
        directory: UDEV_RULES_DIR,
        name: "71-boathook-facts.rules",
        text: include_str!("../../dist/systemd/71-boathook-facts.rules"),
        package_dirs: &PACKAGED_RULES_DIRS,
    },
];

impl ServiceFile {
    /// Returns whether the host has systemd and the directory of the file is writable.
    fn is_installable(&self, host: &Host) -> bool {
        let directory = Path::new(self.directory);
        let parent = directory.parent().unwrap_or(directory);
        let nearest_dir = if host.is_dir(directory) {
            directory
        } else {
            parent
        };
        are_units_visible(host) && is_writable_dir(host, nearest_dir)
    }

    fn path(&self) -> PathBuf {
        Path::new(self.directory).join(self.name)
    }

    /// Returns the path at which the package of a distribution has installed this file, or `None`
    /// if no package has installed it.
    fn find_packaged_file(&self, host: &Host) -> Option<PathBuf> {
        let paths = self
            .package_dirs
            .iter()
            .map(|dir| Path::new(dir).join(self.name));
        paths.into_iter().find(|path| host.exists(path))
    }

    /// Returns the path at which a package has installed this file, if that copy is usable. The
    /// command line in a package's unit for the plugin fits only CDI, the default path of the hook,
    /// and a plugin without arguments of the operator.
    fn find_usable_packaged_file(
        &self,
        host: &Host,
        plugin_command: PluginCommand<'_>,
    ) -> Option<PathBuf> {
        let is_plugin_unit = self.name == Service::Plugin.unit_name();
        let is_default_setup = plugin_command.delivery == HookDelivery::Cdi
            && plugin_command.arguments.is_empty()
            && has_default_programs_dir(host);
        let is_usable = is_default_setup || !is_plugin_unit;
        is_usable.then(|| self.find_packaged_file(host)).flatten()
    }

    /// Returns the text to write. It contains the path of the installed program, because systemd
    /// may not search the directory of the program links. If pods get the hook through a runtime
    /// handler, the plugin's command line tells the plugin not to rely on CDI.
    fn format_text(&self, host: &Host, plugin_command: PluginCommand<'_>) -> String {
        let delivery = plugin_command.delivery;
        let program_path = host.boathook_path();
        let mut text = String::from(MANAGED_FILE_HEADER);
        for line in self.text.lines() {
            let is_engine_check =
                line.ends_with(CHECK_ENGINE_COMMAND) || line == CHECK_ENGINE_COMMENT;
            if delivery == HookDelivery::RuntimeHandler && is_engine_check {
                continue;
            }
            match line.split_once("=boathook") {
                Some((key, command)) => {
                    text += &format!("{key}={}{command}", program_path.display())
                }
                None => text += line,
            }
            if line.ends_with("boathook-plugin run") {
                if delivery == HookDelivery::RuntimeHandler {
                    text += " --delivery=handler";
                }
                if !has_default_programs_dir(host) {
                    text += &format!(" --hook={}", host.directories().hook_path().display());
                }
                for argument in plugin_command.arguments {
                    text += &format!(" {argument}");
                }
            }
            text.push('\n');
        }
        text
    }

    /// Returns the text of the file on the host if an installation has written the file.
    fn read_own_text(&self, host: &Host) -> Result<Option<String>> {
        let text = host.read(&self.path())?;
        Ok(text.filter(|text| text.starts_with(MANAGED_FILE_HEADER)))
    }
}

/// Plans the steps that write unit and rules files. Also plans the removal of a file that an
/// earlier installation wrote and a package has installed since then. If the administrator has a
/// file with the same name, that file is kept.
///
/// The plugin's unit is written only if `services` contains the plugin, because otherwise the
/// program of the unit is not installed.
pub(crate) fn plan_files(
    host: &Host,
    services: &[Service],
    plugin_command: PluginCommand<'_>,
) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for file in SERVICE_FILES
        .iter()
        .filter(|file| file.is_installable(host))
    {
        let old_text = file.read_own_text(host)?;
        if old_text.is_none() && host.exists(&file.path()) {
            continue;
        }
        let is_needed =
            file.name != Service::Plugin.unit_name() || services.contains(&Service::Plugin);
        let is_packaged = file
            .find_usable_packaged_file(host, plugin_command)
            .is_some();
        let new_text = (is_needed && !is_packaged).then(|| file.format_text(host, plugin_command));
        let change = Change::from_texts(
            &file.path(),
            old_text.as_deref(),
            new_text.as_deref(),
            UNIT_FILE_MODE,
        );
        steps.extend(change.map(Step::Change));
    }
    Ok(steps)
}

/// Returns a note if a file of the administrator sets the command line of the plugin's service, so
/// that the arguments of this installation have no effect.
pub(crate) fn describe_ignored_arguments(
    host: &Host,
    services: &[Service],
    arguments: &[PluginArgument],
) -> Result<Option<String>> {
    if arguments.is_empty() || !services.contains(&Service::Plugin) {
        return Ok(None);
    }
    let unit = Path::new(SYSTEMD_UNITS_DIR).join(Service::Plugin.unit_name());
    let drop_in_dir = unit.with_extension("service.d");
    let drop_ins = host.list(&drop_in_dir)?;
    let drop_ins = drop_ins.into_iter().map(|name| drop_in_dir.join(name));
    for path in drop_ins.chain([unit]) {
        let text = host.read(&path)?.unwrap_or_default();
        let sets_command = text.lines().any(|line| line.starts_with("ExecStart="));
        if sets_command && !text.starts_with(MANAGED_FILE_HEADER) {
            return Ok(Some(format!(
                "{} sets the command line of {}, so --plugin-arg has no effect: remove the \
                 ExecStart= lines from that file",
                path.display(),
                Service::Plugin.unit_name()
            )));
        }
    }
    Ok(None)
}

/// Plans the links that enable the services. If a service is already enabled, it needs no step.
///
/// # Errors
/// Fails if the host neither has the unit of a service nor a directory in which to write it. A link
/// to the unit would lead nowhere.
pub(crate) fn plan_links(
    host: &Host,
    services: &[Service],
    plugin_command: PluginCommand<'_>,
) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for service in services {
        let link = service.wants_dir().join(service.unit_name());
        let old_target = host.read_link(&link)?;
        if old_target.is_none() {
            let file = SERVICE_FILES
                .iter()
                .find(|file| file.name == service.unit_name());
            let packaged_unit =
                file.and_then(|file| file.find_usable_packaged_file(host, plugin_command));
            let own_unit = Path::new(SYSTEMD_UNITS_DIR).join(service.unit_name());
            ensure!(
                packaged_unit.is_some() || are_units_visible(host),
                "{option}: {} cannot be written, because this host has no {SYSTEMD_UNITS_DIR}; \
                 leave {option} out, and start the service by the init system of the host",
                own_unit.display(),
                option = service.install_option()
            );
            let unit = packaged_unit.unwrap_or(own_unit);
            steps.push(Step::SetLink {
                link,
                old_target,
                new_target: Some(unit),
            });
        }
    }
    Ok(steps)
}

/// Plans the removal of the links that enable the services. The links may be in any `.wants` or
/// `.requires` directory.
pub(crate) fn plan_service_disabling(host: &Host, services: &[Service]) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for directory in host.list(Path::new(SYSTEMD_UNITS_DIR))? {
        let directory = Path::new(SYSTEMD_UNITS_DIR).join(directory);
        let has_extension = |name: &str| {
            directory
                .extension()
                .is_some_and(|extension| extension == name)
        };
        if !has_extension("wants") && !has_extension("requires") {
            continue;
        }
        for service in services {
            let link = directory.join(service.unit_name());
            let old_target = host.read_link(&link)?;
            steps.extend(old_target.is_some().then_some(Step::SetLink {
                link,
                old_target,
                new_target: None,
            }));
        }
    }
    Ok(steps)
}

/// Plans the steps that disable all services and remove all files that an installation has written.
pub(crate) fn plan_removal(host: &Host) -> Result<Vec<Step>> {
    let mut steps = plan_service_disabling(host, &Service::ALL)?;
    for file in &SERVICE_FILES {
        let own_text = file.read_own_text(host)?;
        // If an installation was killed while it wrote the file, a scratch file is left beside the
        // file.
        let scratch_file = scratch_path(&file.path());
        let scratch_text = host.read(&scratch_file)?;
        for (path, text) in [(file.path(), own_text), (scratch_file, scratch_text)] {
            let change = Change::from_texts(&path, text.as_deref(), None, UNIT_FILE_MODE);
            steps.extend(change.map(Step::Change));
        }
    }
    Ok(steps)
}

/// Returns the services that an earlier installation enabled and this installation disables. Also
/// returns a note for the operator about each of them.
pub(crate) fn find_dropped_services(
    host: &Host,
    old_services: &[Service],
    new_services: &[Service],
) -> (Vec<Service>, Vec<String>) {
    let is_dropped = |service: &&Service| !new_services.contains(service);
    let dropped_services: Vec<Service> = old_services.iter().filter(is_dropped).copied().collect();
    let can_disable = are_units_visible(host);
    let notes = dropped_services.iter().map(|service| {
        let (unit, option) = (service.unit_name(), service.install_option());
        if can_disable {
            format!("{unit} is disabled; install with {option} to enable it again")
        } else {
            format!(
                "{unit} is enabled and stays so, because {SYSTEMD_UNITS_DIR} of the host is not mounted here; \
                 run systemctl disable --now {unit} on the host"
            )
        }
    });
    let notes = notes.collect();
    (
        if can_disable {
            dropped_services
        } else {
            Vec::new()
        },
        notes,
    )
}

/// Returns the services to record in the manifest. These are the new services and, if this process
/// cannot disable units, also the old ones, because they stay enabled.
pub(crate) fn list_services_to_record(
    host: &Host,
    old_services: &[Service],
    new_services: &[Service],
) -> Vec<Service> {
    let mut services = new_services.to_vec();
    if !are_units_visible(host) {
        services.extend(
            old_services
                .iter()
                .filter(|service| !new_services.contains(service)),
        );
    }
    services
}

/// Returns whether the programs are in the default directory. The plugin searches only that
/// directory for the hook, unless its option `--hook` names another path.
fn has_default_programs_dir(host: &Host) -> bool {
    host.programs_dir() == InstalledDirectories::default().programs_dir
}

/// Returns whether this process can see the host's systemd units. A process in a container cannot
/// see them, unless their directory is mounted.
fn are_units_visible(host: &Host) -> bool {
    host.is_dir(Path::new(SYSTEMD_UNITS_DIR))
}

/// Returns whether an installation can enable `service` on this host. The host needs systemd, and
/// the unit must come from a package or be writable. The directory of the link that enables the
/// unit must be writable too.
pub(crate) fn can_enable_service(host: &Host, service: Service) -> bool {
    let wants_dir = service.wants_dir();
    let link_dir = if host.is_dir(&wants_dir) {
        &*wants_dir
    } else {
        Path::new(SYSTEMD_UNITS_DIR)
    };
    let mut files = SERVICE_FILES.iter();
    let file = files.find(|file| file.name == service.unit_name());
    are_units_visible(host)
        && is_writable_dir(host, link_dir)
        && file.is_some_and(|file| {
            file.is_installable(host) || file.find_packaged_file(host).is_some()
        })
}

fn is_writable_dir(host: &Host, directory: &Path) -> bool {
    let entry = host.resolve(&directory.join("any"));
    host.is_dir(directory) && entry.is_ok_and(|entry| entry.check_dir_writable().is_ok())
}

/// Returns whether a link in a `.wants` or `.requires` directory enables a service, no matter who
/// made the link.
pub fn is_service_enabled(host: &Host, service: Service) -> Result<bool> {
    Ok(!plan_service_disabling(host, &[service])?.is_empty())
}

/// Returns the names of the systemd units on the host that an installation or a package has
/// written.
pub fn list_unit_names(host: &Host) -> Vec<&'static str> {
    let is_unit = |file: &&ServiceFile| file.directory == SYSTEMD_UNITS_DIR;
    let is_installed =
        |file: &&ServiceFile| host.exists(&file.path()) || file.find_packaged_file(host).is_some();
    let files = SERVICE_FILES.iter().filter(is_unit).filter(is_installed);
    files.map(|file| file.name).collect()
}
