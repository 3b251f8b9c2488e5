//! The systemd units of Boathook on a host.
//!
//! An installation places the units, disabled, unless a package has brought them, so that
//! `systemctl enable` works after each way of installing. `--follow` and `--cdi` enable them with
//! the link that `systemctl enable` would make. A removal disables all of them, whoever enabled
//! them, because their program is removed.

use std::path::{Path, PathBuf};

use anyhow::Result;
use runtime_config::{Change, HostRoot, scratch_path};

use crate::layout::{COMMANDS, UNITS};
use crate::service::Service;
use crate::step::Step;

/// The directories with the units of a package, or of `make install`.
const PACKAGED_UNITS: [&str; 3] = [
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];
const MODE: u32 = 0o644;
/// The first line of each file that an installation places. A removal leaves other files alone.
const MARK: &str = "# Written by boathook-init, which also removes it. Settings of your own belong in a drop-in.\n";

/// What brings the hook to the containers of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    Cdi,
    /// A runtime handler, which the installer has configured.
    Handler,
}

/// The command of the plugin's unit that is only for CDI, and the comment on it.
const CHECK_ENGINE: &str = "boathook-plugin check-engine";
const CHECK_REASON: &str =
    "# An engine that ignores CDI annotations would start containers without their devices.";

/// A file that the installer places.
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
    /// Returns whether the host has the program that reads the file, and a directory for it that
    /// is not read-only.
    fn can_be_placed(&self, host: &HostRoot) -> bool {
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

    /// Returns the path of the same file of a package.
    fn find_packaged(&self, host: &HostRoot) -> Option<PathBuf> {
        let paths = self
            .packaged
            .iter()
            .map(|dir| Path::new(dir).join(self.name));
        paths.into_iter().find(|path| host.exists(path))
    }

    /// Returns the path of a package's file that does what `delivery` needs. The plugin's unit of a
    /// package delivers by CDI.
    fn find_usable_package(&self, host: &HostRoot, delivery: Delivery) -> Option<PathBuf> {
        let is_for_cdi = self.name == Service::Plugin.unit();
        let is_usable = delivery == Delivery::Cdi || !is_for_cdi;
        is_usable.then(|| self.find_packaged(host)).flatten()
    }

    /// Returns the text to place. The installed program is named by its path, because systemd may
    /// not search the directory with the link to it. With `delivery`, the plugin does not rely on
    /// CDI.
    fn installed_text(&self, delivery: Delivery) -> String {
        let mut text = String::from(MARK);
        for line in self.text.lines() {
            let is_check = line.ends_with(CHECK_ENGINE) || line == CHECK_REASON;
            if delivery == Delivery::Handler && is_check {
                continue;
            }
            match line.split_once("=boathook") {
                Some((key, command)) => text += &format!("{key}={COMMANDS}{command}"),
                None => text += line,
            }
            if delivery == Delivery::Handler && line.ends_with("boathook-plugin run") {
                text += " --delivery=handler";
            }
            text.push('\n');
        }
        text
    }

    /// Returns the text on the host, if an installation placed the file.
    fn read_own(&self, host: &HostRoot) -> Result<Option<String>> {
        let text = host.read(&self.path())?;
        Ok(text.filter(|text| text.starts_with(MARK)))
    }
}

/// Returns the steps that place the files, or that remove those for which a package has brought
/// its own. A file of the administrator with such a name stays.
///
/// The plugin's unit is placed only if it is among `services`: otherwise its program is not
/// installed.
pub(crate) fn plan_files(
    host: &HostRoot,
    services: &[Service],
    delivery: Delivery,
) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for file in FILES.iter().filter(|file| file.can_be_placed(host)) {
        let own = file.read_own(host)?;
        if own.is_none() && host.exists(&file.path()) {
            continue;
        }
        let is_wanted = file.name != Service::Plugin.unit() || services.contains(&Service::Plugin);
        let is_packaged = file.find_usable_package(host, delivery).is_some();
        let wanted = (is_wanted && !is_packaged).then(|| file.installed_text(delivery));
        let change = Change::rewrite(&file.path(), own.as_deref(), wanted.as_deref(), MODE);
        steps.extend(change.map(Step::Change));
    }
    Ok(steps)
}

/// Returns the steps that enable the services, except those that are enabled already.
pub(crate) fn plan_links(
    host: &HostRoot,
    services: &[Service],
    delivery: Delivery,
) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for service in services {
        let link = service.wants().join(service.unit());
        let before = host.read_link(&link)?;
        if before.is_none() {
            let file = FILES.iter().find(|file| file.name == service.unit());
            let packaged = file.and_then(|file| file.find_usable_package(host, delivery));
            let unit = packaged.unwrap_or_else(|| Path::new(UNITS).join(service.unit()));
            steps.push(Step::Point {
                link,
                before,
                after: Some(unit),
            });
        }
    }
    Ok(steps)
}

/// Returns the steps that disable services: the links to their units in all directories of
/// dependencies are removed.
pub(crate) fn plan_disabling(host: &HostRoot, services: &[Service]) -> Result<Vec<Step>> {
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
            steps.extend(before.is_some().then_some(Step::Point {
                link,
                before,
                after: None,
            }));
        }
    }
    Ok(steps)
}

/// Returns the steps that disable all services and remove the files that an installation placed.
pub(crate) fn plan_removal(host: &HostRoot) -> Result<Vec<Step>> {
    let mut steps = plan_disabling(host, &Service::ALL)?;
    for file in &FILES {
        let own = file.read_own(host)?;
        // An installation may have been killed while it wrote the file.
        let scratch = scratch_path(&file.path());
        let unfinished = host.read(&scratch)?;
        for (path, text) in [(file.path(), own), (scratch, unfinished)] {
            let change = Change::rewrite(&path, text.as_deref(), None, MODE);
            steps.extend(change.map(Step::Change));
        }
    }
    Ok(steps)
}

/// Returns the services that an earlier installation enabled and this one disables, and a note for
/// the operator about each.
pub(crate) fn find_dropped(
    host: &HostRoot,
    old: &[Service],
    wanted: &[Service],
) -> (Vec<Service>, Vec<String>) {
    let is_dropped = |service: &&Service| !wanted.contains(service);
    let dropped: Vec<Service> = old.iter().filter(is_dropped).copied().collect();
    let can_disable = can_be_seen(host);
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

/// Returns the services to record: those that are wanted and, where the units cannot be seen, those
/// that an earlier installation enabled.
pub(crate) fn find_recorded(host: &HostRoot, old: &[Service], wanted: &[Service]) -> Vec<Service> {
    let mut services = wanted.to_vec();
    if !can_be_seen(host) {
        services.extend(old.iter().filter(|service| !wanted.contains(service)));
    }
    services
}

/// Returns whether the units are visible, which a container may not have mounted.
fn can_be_seen(host: &HostRoot) -> bool {
    host.is_dir(Path::new(UNITS))
}

/// Returns whether a service is enabled, by whomever.
pub fn is_enabled(host: &HostRoot, service: Service) -> Result<bool> {
    Ok(!plan_disabling(host, &[service])?.is_empty())
}

/// Returns the units that the host has, from an installation or from a package.
pub fn find_units(host: &HostRoot) -> Vec<&'static str> {
    let is_unit = |file: &&ServiceFile| file.directory == UNITS;
    let is_there =
        |file: &&ServiceFile| host.exists(&file.path()) || file.find_packaged(host).is_some();
    let files = FILES.iter().filter(is_unit).filter(is_there);
    files.map(|file| file.name).collect()
}
