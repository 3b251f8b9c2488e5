//! Makes running engines read their new configuration.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};
use initcontainer::host::Host;
use initcontainer::{install, step};
use runtime_config::{
    Engine, InstallationRecord, LoadState, Plan, Reload, RuntimeUse, find_runtime_use, is_running,
};

/// Returns whether a running engine has not read the configuration of the plan yet.
pub(crate) fn needs_restart(host: &Host, plan: &Plan) -> bool {
    match &plan.record {
        Some(record) => runtime_config::find_load_state(host, plan.engine, record) == LoadState::No,
        None => {
            let changed = !plan.is_empty() && plan.engine.facts().reload != Reload::NotNeeded;
            changed && is_running(host, plan.engine)
        }
    }
}

/// Returns whether an engine would have to be restarted after the plan. A dry run prints this.
pub(crate) fn would_need_restart(host: &Host, plan: &Plan) -> bool {
    needs_restart(host, plan) || !plan.is_empty() && is_running(host, plan.engine)
}

/// Restarts or reloads an engine, and waits until it has read the configuration of the plan.
/// Returns the command or signal that was used.
pub(crate) fn restart_engine(host: &Host, plan: &Plan) -> Result<String> {
    let engine = plan.engine;
    let failed = || {
        let advice = restart_command(engine, plan.record.is_none());
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
/// engine needs neither.
pub(crate) fn restart_command(engine: Engine, removal: bool) -> String {
    match engine.facts().reload {
        Reload::NotNeeded => String::new(),
        Reload::Restart(units) => format!("systemctl try-restart {}", units.join(" ")),
        // A reload does not make Docker forget a removed runtime, so a removal needs a restart.
        Reload::Hangup { unit, .. } if removal => format!("systemctl restart {unit}"),
        Reload::Hangup { unit, .. } => format!("systemctl reload {unit}"),
    }
}

/// Makes a running engine stop using the wrapper runtime before its configuration is restored.
/// Only Docker needs this. Returns `false` if the engine does not use it.
pub(crate) fn drop_runtime(host: &Host, engine: Engine) -> Result<bool> {
    if find_runtime_use(host, engine) == RuntimeUse::Nothing {
        return Ok(false);
    }
    let record = InstallationRecord::load(host, &host.record(engine))?;
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

/// Reloads an engine from within the host's root directory, because systemctl and the pid files
/// are found only there.
fn reload(host: &Host, engine: Engine) -> Result<String, runtime_config::Error> {
    enter_root(host)?;
    runtime_config::reload(engine)
}

/// Changes the root directory of this process to the host's.
pub(crate) fn enter_root(host: &Host) -> Result<(), runtime_config::Error> {
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
