//! Finds out how engines come to call the hook for pods: by a runtime handler, or by CDI.

use anyhow::Result;
use runtime_config::{Engine, InstallOptions, InstallationRecord};

use crate::host::Host;
use crate::services::HookDelivery;

/// Returns how engines come to call the hook for pods. If this installation or an earlier one
/// configures an engine that runs pods, pods name its runtime handler. Otherwise the hook is called
/// by CDI (Container Device Interface).
pub(super) fn find_hook_delivery(
    host: &Host,
    engines: &[(Engine, InstallOptions)],
) -> Result<HookDelivery> {
    for engine in Engine::ALL {
        if matches!(engine, Engine::Docker | Engine::Podman) {
            continue;
        }
        let is_being_configured = engines
            .iter()
            .any(|(named_engine, _)| *named_engine == engine);
        if is_being_configured || is_engine_configured(host, engine)? {
            return Ok(HookDelivery::RuntimeHandler);
        }
    }
    Ok(HookDelivery::Cdi)
}

/// Returns whether an engine is configured to call Boathook. It is if one of the configuration
/// files in its record contains the path of the installed programs.
fn is_engine_configured(host: &Host, engine: Engine) -> Result<bool> {
    let record = InstallationRecord::load(host, &host.record_path(engine))?;
    for path in record.iter().flat_map(InstallationRecord::paths) {
        let text = host.read(path)?.unwrap_or_default();
        if text.contains(&*host.current_link_path().to_string_lossy()) {
            return Ok(true);
        }
    }
    Ok(false)
}
