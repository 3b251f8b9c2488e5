//! Implements the command `uninstall`, which removes the programs and reverts the engines'
//! configuration.

use std::path::Path;

use anyhow::{Result, bail};
use initcontainer::cli::Uninstall;
use initcontainer::host::Host;
use initcontainer::lock::InstallerLock;
use initcontainer::manifest::Manifest;
use initcontainer::{step, uninstall};
use runtime_config::{Engine, RuntimeUse, find_runtime_use};

use super::execution::{print_link_count, print_steps};
use super::{check_user, release_installer_lock};
use crate::output::Output;
use crate::{restart, running_services};

/// Returns the source of the installed release, for a message, if it is not the directory
/// `expected_source`. Without a recorded directory, the release was installed from an image.
pub(super) fn describe_other_source(manifest: &Manifest, expected_source: &Path) -> Option<String> {
    match manifest.options.source_dir.as_deref() {
        Some(source) if source == expected_source => None,
        Some(source) => Some(source.display().to_string()),
        None => Some("an image".into()),
    }
}

pub(super) fn uninstall(host: &Host, args: &Uninstall, output: &mut Output) -> Result<()> {
    if let Some(expected_source) = &args.installed_from
        && let Some(manifest) = Manifest::load(host)?
        && let Some(source) = describe_other_source(&manifest, expected_source)
    {
        output.report_note(&format!(
            "the installed version is from {source} and stays; boathook-init uninstall removes it"
        ));
        return Ok(());
    }
    let engines = args.engine.as_ref().map(|names| names.0.as_slice());
    let (engines, force) = (engines.unwrap_or_default(), args.force);
    if args.dry_run {
        let mut plan = uninstall::plan(host, engines, force)?;
        let label_steps = uninstall::plan_label_removal(host, &args.node_labels)?;
        plan.steps.splice(0..0, label_steps);
        print_steps(&plan.steps, output);
        for file in &plan.kept_files {
            output.report_kept_file(file);
        }
        report_unstartable_containers(&plan.unstartable_containers, output);
        let plans_to_load = plan
            .engine_plans
            .iter()
            .filter(|plan| restart::needs_restart(host, plan));
        output.set_next_commands(
            plans_to_load
                .map(|plan| restart::format_restart_command(host, plan.engine, true))
                .collect(),
        );
        return Ok(());
    }
    check_user(host)?;
    let lock = InstallerLock::take(host)?;
    // This plan is only a check, and its steps are not executed. It fails before anything is
    // changed if the removal must be refused, for example because containers need boathook-runtime.
    uninstall::plan(host, engines, force)?;
    let mut engines_without_runtime = Vec::new();
    for engine in Engine::ALL {
        if args.restart && restart::unload_runtime(host, engine)? {
            output.report_restart(engine, "dropped the runtime".to_owned());
            engines_without_runtime.push(engine);
        } else if !force && find_runtime_use(host, engine) == RuntimeUse::DefaultRuntime {
            bail!(
                "{engine} is running with boathook-runtime as its default runtime and would keep \
                 it, so that no container starts; use --restart, which restores its own runtime"
            );
        }
    }
    running_services::stop_services(host, output)?;
    let mut plan = uninstall::plan(host, engines, force)?;
    let label_steps = uninstall::plan_label_removal(host, &args.node_labels)?;
    plan.steps.splice(0..0, label_steps);
    step::execute_steps(host, &plan.steps, |step| {
        output.report_step(step);
        Ok(())
    })?;
    release_installer_lock(lock, output);
    print_link_count(&plan.steps, output);
    for file in &plan.kept_files {
        output.report_kept_file(file);
    }
    report_unstartable_containers(&plan.unstartable_containers, output);
    if plan.steps.is_empty() {
        output.print_text("nothing to do\n");
    } else {
        running_services::reload_changed_units(host, &plan.steps, output)?;
        output.print_text("boathook is uninstalled\n");
    }
    let (mut next_commands, mut failures) = (Vec::new(), Vec::new());
    let plans_to_load = plan.engine_plans.iter().filter(|plan| {
        !engines_without_runtime.contains(&plan.engine) && restart::needs_restart(host, plan)
    });
    for plan in plans_to_load {
        if args.restart {
            failures.extend(restart::restart_engine(host, plan, output).err());
        } else {
            let command = restart::format_restart_command(host, plan.engine, true);
            output.print_text(&format!("next: {command}\n"));
            next_commands.push(command);
        }
    }
    output.set_next_commands(next_commands);
    restart::combine_failures(failures)
}

fn report_unstartable_containers(names: &[String], output: &mut Output) {
    if !names.is_empty() {
        output.report_note(&format!(
            "docker: these containers have the runtime of boathook and cannot be started without it: \
             {}; create them again",
            names.join(", ")
        ));
    }
}
