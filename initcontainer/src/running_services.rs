//! Starts and stops Boathook's services on hosts with systemd.

use std::path::Path;

use anyhow::Result;
use initcontainer::host::Host;
use initcontainer::layout::UNITS;
use initcontainer::service::Service;
use initcontainer::services::{find_units, is_enabled};
use initcontainer::step::Step;
use runtime_config::run_systemctl;

use crate::output::Output;
use crate::restart::enter_root;

/// The directory whose existence tells programs that systemd is running (sd_booted(3)).
const SYSTEMD_RUNNING: &str = "/run/systemd/system";

/// Starts the enabled services, and restarts those that run an earlier version. A failure is only
/// a note, because the installation is complete.
pub(crate) fn start_services(
    host: &Host,
    steps: &[Step],
    services: &[Service],
    output: &mut Output,
) -> Result<()> {
    if steps.is_empty() || !host.is_dir(Path::new(SYSTEMD_RUNNING)) {
        return Ok(());
    }
    enter_root(host)?;
    let mut units = Vec::new();
    for service in services {
        if is_enabled(host, *service)? {
            units.push(service.unit());
        }
    }
    let mut commands = Vec::new();
    if steps.iter().any(|step| step.path().starts_with(UNITS)) {
        commands.push(("daemon-reload", Vec::new()));
    }
    let disabled: Vec<&str> = steps.iter().filter_map(disabled_unit).collect();
    if !disabled.is_empty() {
        commands.push(("stop", disabled));
    }
    // This includes services that the administrator enabled.
    let running = find_units(host);
    if !running.is_empty() {
        commands.push(("try-restart", running));
    }
    if !units.is_empty() {
        commands.push(("start", units));
    }
    for (verb, units) in commands {
        if let Err(error) = run_systemctl(verb, &units) {
            output.report_note(&error.to_string());
        }
    }
    Ok(())
}

/// Returns the unit that a step disables.
fn disabled_unit(step: &Step) -> Option<&str> {
    match step {
        Step::SetLink {
            link, after: None, ..
        } if link.starts_with(UNITS) => link.file_name()?.to_str(),
        _ => None,
    }
}

/// Stops all services before their program is removed. A failure is only a note.
pub(crate) fn stop_services(host: &Host, output: &mut Output) -> Result<()> {
    let units = find_units(host);
    if units.is_empty() || !host.is_dir(Path::new(SYSTEMD_RUNNING)) {
        return Ok(());
    }
    enter_root(host)?;
    if let Err(error) = run_systemctl("stop", &units) {
        output.report_note(&error.to_string());
    }
    Ok(())
}

/// Makes systemd forget the removed units.
pub(crate) fn forget_units(host: &Host, steps: &[Step], output: &mut Output) -> Result<()> {
    let is_due = steps.iter().any(|step| step.path().starts_with(UNITS));
    if is_due && host.is_dir(Path::new(SYSTEMD_RUNNING)) {
        enter_root(host)?;
        if let Err(error) = run_systemctl("daemon-reload", &[]) {
            output.report_note(&error.to_string());
        }
    }
    Ok(())
}
