//! Has running engines read their configuration.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};
use initcontainer::layout::record;
use initcontainer::{install, step};
use runtime_config::{
    Engine, HostRoot, InstallationRecord, LoadState, Plan, Reload, RuntimeUse, find_runtime_use,
    is_running,
};

/// Whether a running engine still must read what the plan wrote.
pub(crate) fn is_due(host: &HostRoot, plan: &Plan) -> bool {
    match &plan.record {
        Some(record) => runtime_config::find_load_state(host, plan.engine, record) == LoadState::No,
        None => {
            let changed = !plan.is_empty() && plan.engine.facts().reload != Reload::NotNeeded;
            changed && is_running(host, plan.engine)
        }
    }
}

/// Whether a running engine would have to read what the plan is to write.
pub(crate) fn would_be_due(host: &HostRoot, plan: &Plan) -> bool {
    is_due(host, plan) || !plan.is_empty() && is_running(host, plan.engine)
}

/// Restarts or reloads an engine, and waits until it has read what the plan
/// wrote. Returns what was done.
pub(crate) fn now(host: &HostRoot, plan: &Plan) -> Result<String> {
    let engine = plan.engine;
    let failed = || {
        let advice = advice(engine, plan.record.is_none());
        format!("{engine} is configured but not restarted; restart it, such as by `{advice}`")
    };
    let done = reload(host, engine).with_context(failed)?;
    if let Some(record) = &plan.record {
        let is_loaded = || runtime_config::find_load_state(host, engine, record) != LoadState::No;
        runtime_config::wait(engine, is_loaded).with_context(failed)?;
    }
    Ok(done)
}

/// The command that does the same.
pub(crate) fn advice(engine: Engine, removal: bool) -> String {
    match engine.facts().reload {
        Reload::NotNeeded => String::new(),
        Reload::Restart(units) => format!("systemctl try-restart {}", units.join(" ")),
        // A reload takes nothing away.
        Reload::Hangup { unit, .. } if removal => format!("systemctl restart {unit}"),
        Reload::Hangup { unit, .. } => format!("systemctl reload {unit}"),
    }
}

/// Has a running engine drop our runtime where reverting its configuration
/// does not do that; `false`: there was nothing to drop.
pub(crate) fn release(host: &HostRoot, engine: Engine) -> Result<bool> {
    if find_runtime_use(host, engine) == RuntimeUse::Nothing {
        return Ok(false);
    }
    let known = InstallationRecord::load(host, &record(engine))?;
    let files = engine.read(host, known.as_ref())?;
    let Some(plan) = engine.plan_release(&files, known.as_ref())? else {
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

/// The host's systemctl and pid files are found under the host's root alone.
fn reload(host: &HostRoot, engine: Engine) -> Result<String, runtime_config::Error> {
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
    runtime_config::reload(engine)
}
