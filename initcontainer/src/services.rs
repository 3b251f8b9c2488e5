//! Plans the systemd units of Boathook on a host.
//!
//! An installation writes the units without enabling them, unless a package has brought them, so
//! that `systemctl enable` works after every way of installing. `--cdi`, `--follow` and
//! `--plugin-service` enable them with the link that `systemctl enable` would make. A removal
//! disables all units, whoever enabled them, because their programs are removed.

use std::path::{Path, PathBuf};

use anyhow::Result;
use device_class::config::InstalledDirectories;
use runtime_config::{Change, scratch_path};

use crate::host::Host;
use crate::layout::UNITS;
use crate::service::Service;
use crate::step::Step;

/// The directories of units that packages and `make install` write.
const PACKAGED_UNITS: [&str; 3] = [
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];
const MODE: u32 = 0o644;
/// The first line of every file that an installation writes. A removal leaves other files alone.
const FIRST_LINE: &str = "# Written by boathook-init, which also removes it. Settings of your own belong in a drop-in.\n";

/// How the containers of pods get the hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HookDelivery {
    /// The engine calls the hook because of CDI names.
    Cdi,
    /// The pods have a runtime handler that the installer has configured.
    Handler,
}

/// A command of the plugin's unit that is only needed with CDI, and the comment above it.
const CHECK_ENGINE: &str = "boathook-plugin check-engine";
const CHECK_REASON: &str =
    "# An engine that ignores CDI annotations would start containers without their devices.";

/// A file that an installation writes.
struct ServiceFile {
    directory: &'static str,
    name: &'static str,
    text: &'static str,
    packaged: &'static [&'static str],
}

const FILES: [ServiceFile; 5] = [
    ServiceFile {
        directory: UNITS,
        name: "boathook-cdi.service",
        text: include_str!("../../dist/systemd/boathook-cdi.service"),
        packaged: &PACKAGED_UNITS,
    },
    ServiceFile {
        directory: UNITS,
        name: "boathook-cdi.timer",
        text: include_str!("../../dist/systemd/boathook-cdi.timer"),
        packaged: &PACKAGED_UNITS,
    },
    ServiceFile {
        directory: UNITS,
        name: "boathook-follow.service",
        text: include_str!("../../dist/systemd/boathook-follow.service"),
        packaged: &PACKAGED_UNITS,
    },
    ServiceFile {
        directory: UNITS,
        name: "boathook-plugin.service",
        text: include_str!("../../dist/systemd/boathook-plugin.service"),
        packaged: &PACKAGED_UNITS,
    },
    ServiceFile {
        directory: "/etc/udev/rules.d",
        name: "71-boathook-cdi.rules",
        text: include_str!("../../dist/systemd/71-boathook-cdi.rules"),
        packaged: &[
            "/usr/local/lib/udev/rules.d",
            "/usr/lib/udev/rules.d",
            "/lib/udev/rules.d",
        ],
    },
];

impl ServiceFile {
    /// Returns whether the host has systemd, and a writable directory for the file.
    fn can_be_placed(&self, host: &Host) -> bool {
        let directory = Path::new(self.directory);
        let parent = directory.parent().unwrap_or(directory);
        let nearest = if host.is_dir(directory) {
            directory
        } else {
            parent
        };
        let place = host.place(&nearest.join("any"));
        host.is_dir(Path::new(UNITS))
            && host.is_dir(nearest)
            && place.is_ok_and(|place| place.check_writable().is_ok())
    }

    fn path(&self) -> PathBuf {
        Path::new(self.directory).join(self.name)
    }

    /// Returns the path at which a package has installed the same file.
    fn find_packaged(&self, host: &Host) -> Option<PathBuf> {
        let paths = self
            .packaged
            .iter()
            .map(|dir| Path::new(dir).join(self.name));
        paths.into_iter().find(|path| host.exists(path))
    }

    /// Returns the path of a package's file that suits `delivery`. The plugin's unit of a package
    /// relies on CDI and names the hook at its default path.
    fn find_usable_package(&self, host: &Host, delivery: HookDelivery) -> Option<PathBuf> {
        let is_plugins = self.name == Service::Plugin.unit();
        let is_usual = delivery == HookDelivery::Cdi && has_usual_programs(host);
        let is_usable = is_usual || !is_plugins;
        is_usable.then(|| self.find_packaged(host)).flatten()
    }

    /// Builds the text to write. It names the installed program by its path, because systemd may
    /// not search the directory with the link. With a runtime handler, the plugin is told not to
    /// rely on CDI.
    fn installed_text(&self, host: &Host, delivery: HookDelivery) -> String {
        let commands = host.commands();
        let mut text = String::from(FIRST_LINE);
        for line in self.text.lines() {
            let is_check = line.ends_with(CHECK_ENGINE) || line == CHECK_REASON;
            if delivery == HookDelivery::Handler && is_check {
                continue;
            }
            match line.split_once("=boathook") {
                Some((key, command)) => text += &format!("{key}={}{command}", commands.display()),
                None => text += line,
            }
            if delivery == HookDelivery::Handler && line.ends_with("boathook-plugin run") {
                text += " --delivery=handler";
            }
            if line.ends_with("boathook-plugin run") && !has_usual_programs(host) {
                text += &format!(" --hook={}", host.directories().hook().display());
            }
            text.push('\n');
        }
        text
    }

    /// Returns the text on the host if an installation wrote the file.
    fn read_own(&self, host: &Host) -> Result<Option<String>> {
        let text = host.read(&self.path())?;
        Ok(text.filter(|text| text.starts_with(FIRST_LINE)))
    }
}

/// Plans the files to write, and the removal of files for which a package has brought its own. A
/// file of the administrator with such a name is kept.
///
/// The plugin's unit is written only if `services` has it, because otherwise its program is not
/// installed.
pub(crate) fn plan_files(
    host: &Host,
    services: &[Service],
    delivery: HookDelivery,
) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for file in FILES.iter().filter(|file| file.can_be_placed(host)) {
        let own = file.read_own(host)?;
        if own.is_none() && host.exists(&file.path()) {
            continue;
        }
        let is_wanted = file.name != Service::Plugin.unit() || services.contains(&Service::Plugin);
        let is_packaged = file.find_usable_package(host, delivery).is_some();
        let wanted = (is_wanted && !is_packaged).then(|| file.installed_text(host, delivery));
        let change = Change::rewrite(&file.path(), own.as_deref(), wanted.as_deref(), MODE);
        steps.extend(change.map(Step::Change));
    }
    Ok(steps)
}

/// Plans the links that enable the services. Services that are enabled already need none.
pub(crate) fn plan_links(
    host: &Host,
    services: &[Service],
    delivery: HookDelivery,
) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for service in services {
        let link = service.wants_directory().join(service.unit());
        let before = host.read_link(&link)?;
        if before.is_none() {
            let file = FILES.iter().find(|file| file.name == service.unit());
            let packaged = file.and_then(|file| file.find_usable_package(host, delivery));
            let unit = packaged.unwrap_or_else(|| Path::new(UNITS).join(service.unit()));
            steps.push(Step::SetLink {
                link,
                before,
                after: Some(unit),
            });
        }
    }
    Ok(steps)
}

/// Plans the removal of the links that enable the services, in every `.wants` and `.requires`
/// directory.
pub(crate) fn plan_disabling(host: &Host, services: &[Service]) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for directory in host.list(Path::new(UNITS))? {
        let directory = Path::new(UNITS).join(directory);
        let is_of_links = |kind: &str| directory.extension().is_some_and(|e| e == kind);
        if !is_of_links("wants") && !is_of_links("requires") {
            continue;
        }
        for service in services {
            let link = directory.join(service.unit());
            let before = host.read_link(&link)?;
            steps.extend(before.is_some().then_some(Step::SetLink {
                link,
                before,
                after: None,
            }));
        }
    }
    Ok(steps)
}

/// Plans the removal of all services and files that an installation wrote.
pub(crate) fn plan_removal(host: &Host) -> Result<Vec<Step>> {
    let mut steps = plan_disabling(host, &Service::ALL)?;
    for file in &FILES {
        let own = file.read_own(host)?;
        // An installation that was killed while it wrote the file leaves a scratch file.
        let scratch = scratch_path(&file.path());
        let unfinished = host.read(&scratch)?;
        for (path, text) in [(file.path(), own), (scratch, unfinished)] {
            let change = Change::rewrite(&path, text.as_deref(), None, MODE);
            steps.extend(change.map(Step::Change));
        }
    }
    Ok(steps)
}

/// Returns the services that an earlier installation enabled and this one disables, with a note
/// for the operator about each.
pub(crate) fn find_dropped(
    host: &Host,
    old: &[Service],
    wanted: &[Service],
) -> (Vec<Service>, Vec<String>) {
    let is_dropped = |service: &&Service| !wanted.contains(service);
    let dropped: Vec<Service> = old.iter().filter(is_dropped).copied().collect();
    let can_disable = are_units_visible(host);
    let notes = dropped.iter().map(|service| {
        let (unit, option) = (service.unit(), service.option());
        if can_disable {
            format!("{unit} is disabled; install with {option} to keep it")
        } else {
            format!(
                "{unit} is enabled and stays so, because {UNITS} of the host is not mounted here; \
                 run boathook-init install or uninstall on the host to disable it"
            )
        }
    });
    let notes = notes.collect();
    (if can_disable { dropped } else { Vec::new() }, notes)
}

/// Returns the services to record: the wanted ones and, if units are not visible here, those that
/// an earlier installation enabled.
pub(crate) fn services_to_record(host: &Host, old: &[Service], wanted: &[Service]) -> Vec<Service> {
    let mut services = wanted.to_vec();
    if !are_units_visible(host) {
        services.extend(old.iter().filter(|service| !wanted.contains(service)));
    }
    services
}

/// Returns whether the programs are in the default directory, so that other programs find them
/// without an option.
fn has_usual_programs(host: &Host) -> bool {
    host.programs() == InstalledDirectories::default().programs
}

/// Returns whether units are visible. They are not in a container that has not mounted their
/// directory.
fn are_units_visible(host: &Host) -> bool {
    host.is_dir(Path::new(UNITS))
}

/// Returns whether a service is enabled, whoever enabled it.
pub fn is_enabled(host: &Host, service: Service) -> Result<bool> {
    Ok(!plan_disabling(host, &[service])?.is_empty())
}

/// Returns the units on the host, from an installation or a package.
pub fn find_units(host: &Host) -> Vec<&'static str> {
    let is_unit = |file: &&ServiceFile| file.directory == UNITS;
    let is_there =
        |file: &&ServiceFile| host.exists(&file.path()) || file.find_packaged(host).is_some();
    let files = FILES.iter().filter(is_unit).filter(is_there);
    files.map(|file| file.name).collect()
}
