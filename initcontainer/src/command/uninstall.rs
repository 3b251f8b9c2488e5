//! Implements the command `uninstall`.

use std::path::Path;

use anyhow::{Result, bail};
use initcontainer::cli::Uninstall;
use initcontainer::host::Host;
use initcontainer::lock::Lock;
use initcontainer::manifest::Manifest;
use initcontainer::{step, uninstall};
use runtime_config::{Engine, RuntimeUse, find_runtime_use};

use super::carry_out::{show_links, show_steps};
use super::{check_user, release_installer_lock};
use crate::output::Output;
use crate::{restart, running_services};

/// Returns the origin of the installation, as a text, if it is not `expected`.
pub(super) fn find_other_source(manifest: &Manifest, expected: &Path) -> Option<String> {
    match manifest.options.source.as_deref() {
        Some(source) if source == expected => None,
        Some(source) => Some(source.display().to_string()),
        None => Some("an image".into()),
    }
}

pub(super) fn uninstall(host: &Host, args: &Uninstall, output: &mut Output) -> Result<()> {
    if let Some(expected) = &args.installed_from
        && let Some(manifest) = Manifest::load(host)?
        && let Some(other) = find_other_source(&manifest, expected)
    {
        output.report_note(&format!(
            "the installed version is from {other} and stays; boathook-init uninstall removes it"
        ));
        return Ok(());
    }
    let named = args.engine.as_ref().map(|names| names.0.as_slice());
    let (also, force) = (named.unwrap_or_default(), args.force);
    if args.dry_run {
        let mut plan = uninstall::plan(host, also, force)?;
        let labels = uninstall::remove_labels(host, &args.node_labels)?;
        plan.steps.splice(0..0, labels);
        show_steps(&plan.steps, output);
        for kept in &plan.kept {
            output.report_kept(kept);
        }
        note_stranded(&plan.stranded, output);
        let due = plan
            .engines
            .iter()
            .filter(|plan| restart::needs_restart(host, plan));
        output.set_next_commands(
            due.map(|plan| restart::restart_command(plan.engine, true))
                .collect(),
        );
        return Ok(());
    }
    check_user(host)?;
    let lock = Lock::take(host)?;
    // This first plan only detects refusals, so that they come before any change.
    uninstall::plan(host, also, force)?;
    let mut released = Vec::new();
    for engine in Engine::ALL {
        if args.restart && restart::drop_runtime(host, engine)? {
            output.report_restart(engine, "dropped the runtime".to_owned());
            released.push(engine);
        } else if !force && find_runtime_use(host, engine) == RuntimeUse::DefaultRuntime {
            bail!(
                "{engine} is running with boathook-runtime as its default runtime and would keep \
                 it, so that no container starts; use --restart, which restores its own runtime"
            );
        }
    }
    running_services::stop_services(host, output)?;
    let mut plan = uninstall::plan(host, also, force)?;
    let labels = uninstall::remove_labels(host, &args.node_labels)?;
    plan.steps.splice(0..0, labels);
    step::run(host, &plan.steps, |step| {
        output.report_step(step);
        Ok(())
    })?;
    release_installer_lock(lock, output);
    show_links(&plan.steps, output);
    for kept in &plan.kept {
        output.report_kept(kept);
    }
    note_stranded(&plan.stranded, output);
    if plan.steps.is_empty() {
        output.print_text("nothing to do\n");
    } else {
        running_services::forget_units(host, &plan.steps, output)?;
        output.print_text("boathook is uninstalled\n");
    }
    let engines = plan.engines.iter();
    let left = engines.filter(|plan| !released.contains(&plan.engine));
    let mut next = Vec::new();
    for plan in left.filter(|plan| restart::needs_restart(host, plan)) {
        if args.restart {
            output.report_restart(plan.engine, restart::restart_engine(host, plan)?);
        } else {
            let advice = restart::restart_command(plan.engine, true);
            output.print_text(&format!("next: {advice}\n"));
            next.push(advice);
        }
    }
    output.set_next_commands(next);
    Ok(())
}

fn note_stranded(names: &[String], output: &mut Output) {
    if !names.is_empty() {
        output.report_note(&format!(
            "docker: these containers have the runtime of boathook and cannot be started without it: \
             {}; create them again",
            names.join(", ")
        ));
    }
}
