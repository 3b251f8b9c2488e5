//! Makes running engines read their configuration.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};
use initcontainer::layout::record_path;
use initcontainer::{install, step};
use runtime_config::{
    Engine, HostRoot, InstallationRecord, LoadState, Plan, Reload, RuntimeUse, find_runtime_use,
    is_running,
};

/// Returns whether a running engine still has to read the configuration that the plan wrote.
pub(crate) fn is_due(host: &HostRoot, plan: &Plan) -> bool {
    match &plan.record {
        Some(record) => runtime_config::find_load_state(host, plan.engine, record) == LoadState::No,
        None => {
            let changed = !plan.is_empty() && plan.engine.facts().reload != Reload::NotNeeded;
            changed && is_running(host, plan.engine)
        }
    }
}

/// Returns whether a running engine would have to read its configuration after the plan is
/// carried out. A dry run prints this.
pub(crate) fn would_be_due(host: &HostRoot, plan: &Plan) -> bool {
    is_due(host, plan) || !plan.is_empty() && is_running(host, plan.engine)
}

/// Restarts or reloads an engine, and waits until it has read the configuration that the plan
/// wrote. Returns the command or signal that was used.
pub(crate) fn restart(host: &HostRoot, plan: &Plan) -> Result<String> {
    let engine = plan.engine;
    let failed = || {
        let advice = advice(engine, plan.record.is_none());
        format!("{engine} is configured but not restarted; restart it, such as by `{advice}`")
    };
    let action = reload(host, engine).with_context(failed)?;
    if let Some(record) = &plan.record {
        let is_loaded = || runtime_config::find_load_state(host, engine, record) != LoadState::No;
        runtime_config::wait(engine, is_loaded).with_context(failed)?;
    }
    Ok(action)
}

/// Returns the command with which an operator restarts or reloads the engine. It is empty if the
/// engine needs no reload.
pub(crate) fn advice(engine: Engine, removal: bool) -> String {
    match engine.facts().reload {
        Reload::NotNeeded => String::new(),
        Reload::Restart(units) => format!("systemctl try-restart {}", units.join(" ")),
        // Docker keeps a removed runtime at a reload, so a removal needs a restart.
        Reload::Hangup { unit, .. } if removal => format!("systemctl restart {unit}"),
        Reload::Hangup { unit, .. } => format!("systemctl reload {unit}"),
    }
}

/// Makes a running engine drop Boathook's runtime before the engine's configuration is restored.
/// Only Docker needs this. Returns `false` if there was nothing to drop.
pub(crate) fn release(host: &HostRoot, engine: Engine) -> Result<bool> {
    if find_runtime_use(host, engine) == RuntimeUse::Nothing {
        return Ok(false);
    }
    let record = InstallationRecord::load(host, &record_path(engine))?;
    let files = engine.read(host, record.as_ref())?;
    let Some(plan) = engine.plan_release(&files, record.as_ref())? else {
        return Ok(false);
    };
    let steps = install::engine_steps(host, &plan)?;
    let mut left = steps.len();
    step::run(host, &steps, |_| {
        left -= 1;
        if left > 0 {
            return Ok(());
        }
        reload(host, engine)?;
        let is_released = || find_runtime_use(host, engine) == RuntimeUse::Nothing;
        Ok(runtime_config::wait(engine, is_released)?)
    })?;
    Ok(true)
}

/// Reloads an engine from within the host's root directory. The process changes its root to the
/// host's first, because systemctl and the pid files are only found there.
fn reload(host: &HostRoot, engine: Engine) -> Result<String, runtime_config::Error> {
    enter_root(host)?;
    runtime_config::reload(engine)
}

/// Makes the host's root directory that of this process.
pub(crate) fn enter_root(host: &HostRoot) -> Result<(), runtime_config::Error> {
    let root = host.as_path();
    let enter = |e| runtime_config::Error::io("enter", root)(e);
    let now = std::fs::metadata("/").map_err(enter)?;
    let is_inside = host
        .stat(Path::new("/"))
        .is_some_and(|stat| (stat.st_dev, stat.st_ino) == (now.dev(), now.ino()));
    if !is_inside {
        nix::unistd::chroot(root)
            .and_then(|()| nix::unistd::chdir("/"))
            .map_err(|e| runtime_config::Error::io("enter", root)(e.into()))?;
    }
    Ok(())
}
