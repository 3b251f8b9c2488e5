//! Makes running engines read their new configuration.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Error, Result, bail};
use initcontainer::host::Host;
use initcontainer::install::InstallationPlan;
use initcontainer::{install, step};
use runtime_config::{
    Engine, InstallationRecord, LiveRestore, LoadState, Plan, ReloadMethod, RuntimeUse,
    find_existing_units, find_runtime_use, has_systemd, is_running, run_systemctl,
};

use crate::output::Output;

/// The restarts and reloads without which running engines do not use their new configuration.
pub(crate) struct PendingRestarts {
    pub(crate) engines: Vec<Engine>,
    /// Whether Docker must be restarted to find the programs of `--gpus`. It searches for them only
    /// when it starts, so that a reload is not enough.
    pub(crate) needs_docker_restart: bool,
}

impl PendingRestarts {
    /// Returns the restarts that are needed after the plan was executed.
    pub(crate) fn find(host: &Host, plan: &InstallationPlan) -> Self {
        Self::find_pending(host, plan, needs_restart)
    }

    /// Returns the restarts that would be needed if the plan were executed. A dry run uses this.
    pub(crate) fn predict(host: &Host, plan: &InstallationPlan) -> Self {
        Self::find_pending(host, plan, would_need_restart)
    }

    fn find_pending(
        host: &Host,
        plan: &InstallationPlan,
        is_pending: impl Fn(&Host, &Plan) -> bool,
    ) -> Self {
        let engine_plans = plan.engine_plans.iter();
        Self {
            engines: engine_plans
                .filter(|plan| is_pending(host, plan))
                .map(|plan| plan.engine)
                .collect(),
            needs_docker_restart: plan.needs_docker_restart && is_running(host, Engine::Docker),
        }
    }
}

/// Restarts or reloads the engines that have not read their new configuration. If this fails for an
/// engine, the other engines are restarted nevertheless. Returns the restarts that are still
/// pending, and the failures.
pub(crate) fn restart_engines(
    host: &Host,
    plans: &[Plan],
    mut pending: PendingRestarts,
    output: &mut Output,
) -> (PendingRestarts, Vec<Error>) {
    let mut failures = Vec::new();
    let plans = plans
        .iter()
        .filter(|plan| pending.engines.contains(&plan.engine));
    let mut failed_engines = Vec::new();
    for plan in plans {
        if let Err(failure) = restart_engine(host, plan, output) {
            failed_engines.push(plan.engine);
            failures.push(failure);
        }
    }
    pending.engines = failed_engines;
    if pending.needs_docker_restart {
        match restart_docker(host, output) {
            Ok(is_restarted) => pending.needs_docker_restart = !is_restarted,
            Err(failure) => failures.push(failure),
        }
    }
    (pending, failures)
}

/// Returns an error that lists the failures of all engines, or success if there are none. A command
/// calls this last, so that its other work is done.
pub(crate) fn combine_failures(failures: Vec<Error>) -> Result<()> {
    let descriptions: Vec<String> = failures.iter().map(|error| format!("{error:#}")).collect();
    if !descriptions.is_empty() {
        bail!("{}", descriptions.join("; "));
    }
    Ok(())
}

/// Restarts Docker, so that it searches for the programs of `--gpus` again. Does so only if
/// `live-restore` keeps its containers running meanwhile, and reports a note for the operator
/// otherwise. Returns whether Docker was restarted.
fn restart_docker(host: &Host, output: &mut Output) -> Result<bool> {
    let command = format_restart_command(host, Engine::Docker, true);
    let describe_failure =
        || format!("docker is not restarted, and may lack the option --gpus; run `{command}`");
    chroot_to_host(host).with_context(describe_failure)?;
    let reason = match describe_missing_live_restore(host, &LiveRestore::find(host)) {
        Some(cause) => format!("its containers would end, because {cause}"),
        None if !has_systemd() => "systemd does not run here".to_owned(),
        None => {
            let ReloadMethod::Hangup { unit, .. } = Engine::Docker.properties().reload_method
            else {
                return Ok(false);
            };
            let action = run_systemctl("restart", &[unit]).with_context(describe_failure)?;
            output.report_restart(Engine::Docker, action);
            return Ok(true);
        }
    };
    output.report_note(&format!(
        "docker was not restarted: {reason}; it searches for the programs of --gpus only when it \
         starts: run `{command}` when that suits"
    ));
    Ok(false)
}

/// Returns the reason why a restart of Docker would end its containers. Returns `None` if they
/// continue to run, because `live-restore` is set.
fn describe_missing_live_restore(host: &Host, live_restore: &LiveRestore) -> Option<String> {
    let cause = match live_restore {
        LiveRestore::Enabled => return None,
        LiveRestore::Disabled => "`live-restore` is not set".to_owned(),
        LiveRestore::NotLoaded(path) => format!(
            "it has not read the `live-restore` of {} yet, which `{}` makes it do",
            path.display(),
            format_restart_command(host, Engine::Docker, false)
        ),
        LiveRestore::OptionNotLoaded => {
            "it was started before its command line had `--live-restore`".to_owned()
        }
        LiveRestore::Removed(path) => format!(
            "{} does not set `live-restore` any more for its next start",
            path.display()
        ),
        LiveRestore::Unknown => "it does not answer whether it has `live-restore`".to_owned(),
    };
    Some(cause)
}

/// Returns whether the engine is running and has not read the planned configuration yet.
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

/// Returns whether the engine would have to be restarted if the plan were executed. A dry run uses
/// this.
fn would_need_restart(host: &Host, plan: &Plan) -> bool {
    needs_restart(host, plan) || !plan.is_empty() && is_running(host, plan.engine)
}

/// Restarts or reloads an engine, and waits until it has read the planned configuration. Reports
/// the command or signal that was used.
pub(crate) fn restart_engine(host: &Host, plan: &Plan, output: &mut Output) -> Result<()> {
    let engine = plan.engine;
    let describe_failure = || {
        let command = format_restart_command(host, engine, plan.record.is_none());
        format!("{engine} is configured but not restarted; restart it, such as by `{command}`")
    };
    // If systemctl fails, for example because the engine rejects the reload, only a restart is
    // left. It can stop containers, so the operator chooses the time.
    let describe_failed_reload = || {
        let command = format_restart_command(host, engine, true);
        format!(
            "boathook is installed, and {engine} is configured but not restarted; restart it, which \
             can stop its containers, at a suitable time, such as by `{command}`"
        )
    };
    let action = match reload_engine(host, engine) {
        Err(error @ runtime_config::Error::Systemctl { .. }) => {
            return Err(error).with_context(describe_failed_reload);
        }
        result => result.with_context(describe_failure)?,
    };
    if let Some(record) = &plan.record {
        let is_loaded =
            || runtime_config::find_load_state(host, engine, record) != LoadState::NotLoaded;
        runtime_config::wait_for_reload(engine, is_loaded).with_context(describe_failure)?;
    }
    output.report_restart(engine, action);
    Ok(())
}

/// Returns the command with which an operator restarts or reloads the engine. `is_removal` is true
/// after `uninstall`, and false after an installation. The text is empty if the engine needs
/// neither.
pub(crate) fn format_restart_command(host: &Host, engine: Engine, is_removal: bool) -> String {
    match engine.properties().reload_method {
        ReloadMethod::NotNeeded => String::new(),
        ReloadMethod::Restart(units) => {
            let units = find_existing_units(host, units);
            format!("systemctl try-restart {}", units.join(" "))
        }
        // If Docker only reloads its configuration, it keeps a removed runtime. Therefore a removal
        // needs a restart.
        ReloadMethod::Hangup { unit, .. } if is_removal => format!("systemctl restart {unit}"),
        ReloadMethod::Hangup { unit, .. } => format!("systemctl reload {unit}"),
    }
}

/// Makes a running engine stop using `boathook-runtime`, before its configuration is restored. Only
/// Docker needs this. Returns `false` if the engine does not use `boathook-runtime`.
pub(crate) fn unload_runtime(host: &Host, engine: Engine) -> Result<bool> {
    if find_runtime_use(host, engine) == RuntimeUse::None {
        return Ok(false);
    }
    let record = InstallationRecord::load(host, &host.record_path(engine))?;
    let snapshot = engine.read_snapshot(host, record.as_ref())?;
    let Some(plan) = engine.plan_runtime_unload(&snapshot, record.as_ref())? else {
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
    chroot_to_host(host)?;
    runtime_config::reload_engine(host, engine)
}

/// Changes the root directory of this process to the host's root directory (chroot(2)), so that it
/// executes the host's programs. Does nothing if the process is there already.
pub(crate) fn chroot_to_host(host: &Host) -> Result<(), runtime_config::Error> {
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
