//! Starts and stops Boathook's services on hosts with systemd.

use std::path::Path;

use anyhow::Result;
use initcontainer::host::Host;
use initcontainer::layout::SYSTEMD_UNITS_DIR;
use initcontainer::service::Service;
use initcontainer::services::{is_service_enabled, list_unit_names};
use initcontainer::step::Step;
use runtime_config::run_systemctl;

use crate::output::Output;
use crate::restart::chroot_to_host;

/// A directory that exists only if systemd is running (sd_booted(3)).
const SYSTEMD_RUN_DIR: &str = "/run/systemd/system";

/// Starts the enabled services. Restarts running services, because their programs may belong to an
/// earlier version. If this fails, only a note is reported, because the installation is complete.
pub(crate) fn start_services(
    host: &Host,
    steps: &[Step],
    services: &[Service],
    output: &mut Output,
) -> Result<()> {
    if steps.is_empty() || !host.is_dir(Path::new(SYSTEMD_RUN_DIR)) {
        return Ok(());
    }
    chroot_to_host(host)?;
    let mut enabled_units = Vec::new();
    for service in services {
        if is_service_enabled(host, *service)? {
            enabled_units.push(service.unit_name());
        }
    }
    let mut commands = Vec::new();
    if steps
        .iter()
        .any(|step| step.path().starts_with(SYSTEMD_UNITS_DIR))
    {
        commands.push(("daemon-reload", Vec::new()));
    }
    let disabled_units: Vec<&str> = steps.iter().filter_map(find_disabled_unit).collect();
    if !disabled_units.is_empty() {
        commands.push(("stop", disabled_units));
    }
    // All installed units are named, not only those that this run enables, because the
    // administrator may have enabled others. Both verbs ignore units that are not running.
    let (replaced_units, restarted_units): (Vec<_>, Vec<_>) = list_unit_names(host)
        .into_iter()
        .partition(|unit| can_reload_unit(unit, steps));
    for (verb, units) in [
        ("try-restart", restarted_units),
        ("try-reload-or-restart", replaced_units),
    ] {
        if !units.is_empty() {
            commands.push((verb, units));
        }
    }
    if !enabled_units.is_empty() {
        commands.push(("start", enabled_units));
    }
    for (verb, units) in commands {
        if let Err(error) = run_systemctl(verb, &units) {
            output.report_note(&error.to_string());
        }
    }
    Ok(())
}

/// Returns whether a unit is reloaded instead of restarted. That is the plugin's unit: at a reload,
/// the plugin executes the newly installed program with its present arguments. During a restart,
/// the kubelet would refuse pods. A restart is needed if the unit file has changed, because this
/// file contains the arguments.
fn can_reload_unit(unit: &str, steps: &[Step]) -> bool {
    let is_changed = || {
        let path = Path::new(SYSTEMD_UNITS_DIR).join(unit);
        steps.iter().any(|step| step.path() == path)
    };
    unit == Service::Plugin.unit_name() && !is_changed()
}

/// Returns the unit that a step disables by removing the unit's link. Returns `None` for other
/// steps.
fn find_disabled_unit(step: &Step) -> Option<&str> {
    match step {
        Step::SetLink {
            link,
            new_target: None,
            ..
        } if link.starts_with(SYSTEMD_UNITS_DIR) => link.file_name()?.to_str(),
        _ => None,
    }
}

/// Stops all services before their programs are removed. If this fails, only a note is reported,
/// and the removal continues.
///
/// The units for facts are stopped first. When `boathook-facts.service` ends, it restarts
/// `boathook-cdi.timer`, which then writes CDI specifications, so that timer must be stopped
/// afterwards.
pub(crate) fn stop_services(host: &Host, output: &mut Output) -> Result<()> {
    let units = list_unit_names(host);
    if units.is_empty() || !host.is_dir(Path::new(SYSTEMD_RUN_DIR)) {
        return Ok(());
    }
    chroot_to_host(host)?;
    let (facts_units, other_units): (Vec<&str>, Vec<&str>) = units
        .into_iter()
        .partition(|unit| unit.starts_with("boathook-facts."));
    for units in [facts_units, other_units] {
        if !units.is_empty()
            && let Err(error) = run_systemctl("stop", &units)
        {
            output.report_note(&error.to_string());
        }
    }
    Ok(())
}

/// Makes systemd read its units again if steps have removed or changed units.
pub(crate) fn reload_changed_units(host: &Host, steps: &[Step], output: &mut Output) -> Result<()> {
    let changes_units = steps
        .iter()
        .any(|step| step.path().starts_with(SYSTEMD_UNITS_DIR));
    if changes_units && host.is_dir(Path::new(SYSTEMD_RUN_DIR)) {
        chroot_to_host(host)?;
        if let Err(error) = run_systemctl("daemon-reload", &[]) {
            output.report_note(&error.to_string());
        }
    }
    Ok(())
}
