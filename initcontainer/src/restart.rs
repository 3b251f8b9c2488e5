//! Makes running engines read their new configuration.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};
use initcontainer::host::Host;
use initcontainer::{install, step};
use runtime_config::{
    Engine, InstallationRecord, LoadState, Plan, ReloadMethod, RuntimeUse, find_runtime_use,
    is_running,
};

/// Returns whether an engine runs that has not read the planned configuration yet.
pub(crate) fn needs_restart(host: &Host, plan: &Plan) -> bool {
    match &plan.record {
        Some(record) => {
            runtime_config::find_load_state(host, plan.engine, record) == LoadState::NotLoaded
        }
        None => {
            let needs_reload = !plan.is_empty()
                && plan.engine.properties().reload_method != ReloadMethod::NotNeeded;
            needs_reload && is_running(host, plan.engine)
        }
    }
}

/// Returns whether an engine would have to be restarted if the plan were executed. A dry run uses
/// this.
pub(crate) fn would_need_restart(host: &Host, plan: &Plan) -> bool {
    needs_restart(host, plan) || !plan.is_empty() && is_running(host, plan.engine)
}

/// Restarts or reloads an engine, and waits until it has read the planned configuration. Returns
/// the command or signal that was used.
pub(crate) fn restart_engine(host: &Host, plan: &Plan) -> Result<String> {
    let engine = plan.engine;
    let describe_failure = || {
        let command = format_restart_command(engine, plan.record.is_none());
        format!("{engine} is configured but not restarted; restart it, such as by `{command}`")
    };
    let action = reload_engine(host, engine).with_context(describe_failure)?;
    if let Some(record) = &plan.record {
        let is_loaded =
            || runtime_config::find_load_state(host, engine, record) != LoadState::NotLoaded;
        runtime_config::wait_for_reload(engine, is_loaded).with_context(describe_failure)?;
    }
    Ok(action)
}

/// Returns the command with which an operator restarts or reloads the engine. `is_removal` tells
/// whether this happens after `uninstall` or after an installation. The text is empty if the engine
/// needs neither.
pub(crate) fn format_restart_command(engine: Engine, is_removal: bool) -> String {
    match engine.properties().reload_method {
        ReloadMethod::NotNeeded => String::new(),
        ReloadMethod::Restart(units) => format!("systemctl try-restart {}", units.join(" ")),
        // If Docker only reloads its configuration, it keeps a removed runtime. Therefore a removal
        // needs a restart.
        ReloadMethod::Hangup { unit, .. } if is_removal => format!("systemctl restart {unit}"),
        ReloadMethod::Hangup { unit, .. } => format!("systemctl reload {unit}"),
    }
}

/// Makes a running engine stop using the wrapper runtime, before its configuration is restored.
/// Only Docker needs this. Returns `false` if the engine does not use the wrapper runtime.
pub(crate) fn drop_runtime(host: &Host, engine: Engine) -> Result<bool> {
    if find_runtime_use(host, engine) == RuntimeUse::None {
        return Ok(false);
    }
    let record = InstallationRecord::load(host, &host.record_path(engine))?;
    let snapshot = engine.read_snapshot(host, record.as_ref())?;
    let Some(plan) = engine.plan_runtime_drop(&snapshot, record.as_ref())? else {
        return Ok(false);
    };
    let steps = install::plan_engine_steps(host, &plan)?;
    let mut remaining_steps = steps.len();
    step::execute_steps(host, &steps, |_| {
        remaining_steps -= 1;
        if remaining_steps > 0 {
            return Ok(());
        }
        reload_engine(host, engine)?;
        let is_runtime_unused = || find_runtime_use(host, engine) == RuntimeUse::None;
        Ok(runtime_config::wait_for_reload(engine, is_runtime_unused)?)
    })?;
    Ok(true)
}

/// Reloads an engine. First changes the root directory of this process to that of the host, because
/// systemctl and the pid files are there.
fn reload_engine(host: &Host, engine: Engine) -> Result<String, runtime_config::Error> {
    enter_root(host)?;
    runtime_config::reload_engine(engine)
}

/// Changes the root directory of this process to the host's root directory.
pub(crate) fn enter_root(host: &Host) -> Result<(), runtime_config::Error> {
    let root = host.as_path();
    let to_error = |error| runtime_config::Error::io("enter", root)(error);
    let current_root = std::fs::metadata("/").map_err(to_error)?;
    let is_host_root = host
        .stat(Path::new("/"))
        .is_some_and(|stat| (stat.st_dev, stat.st_ino) == (current_root.dev(), current_root.ino()));
    if !is_host_root {
        nix::unistd::chroot(root)
            .and_then(|()| nix::unistd::chdir("/"))
            .map_err(|errno| to_error(errno.into()))?;
    }
    Ok(())
}
