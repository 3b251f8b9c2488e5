//! Finds out what brings the hook to pods on a host.

use anyhow::Result;
use runtime_config::{Engine, HostRoot, InstallationRecord, Options};

use crate::layout::{CURRENT, record_path};
use crate::services::Delivery;

/// Returns what brings the hook to pods: a runtime handler, if an engine that runs pods is configured
/// in this run, or by an earlier one whose configuration is still there.
pub(super) fn find_delivery(host: &HostRoot, engines: &[(Engine, Options)]) -> Result<Delivery> {
    for engine in Engine::ALL {
        if matches!(engine, Engine::Docker | Engine::Podman) {
            continue;
        }
        let is_named = engines.iter().any(|(named, _)| *named == engine);
        if is_named || names_programs(host, engine)? {
            return Ok(Delivery::Handler);
        }
    }
    Ok(Delivery::Cdi)
}

/// Returns whether a recorded file of an engine's configuration names the installed programs.
fn names_programs(host: &HostRoot, engine: Engine) -> Result<bool> {
    let record = InstallationRecord::load(host, &record_path(engine))?;
    for path in record.iter().flat_map(InstallationRecord::paths) {
        let text = host.read(path)?.unwrap_or_default();
        if text.contains(CURRENT) {
            return Ok(true);
        }
    }
    Ok(false)
}
