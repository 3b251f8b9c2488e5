//! Executes or prints a planned installation or upgrade, and then prints what the operator must do
//! next.

use std::path::Path;

use anyhow::Result;
use initcontainer::compatibility::{OfferedNames, find_offers};
use initcontainer::host::Host;
use initcontainer::install;
use initcontainer::layout::{LINKS, PACKAGED};
use initcontainer::lock::Lock;
use initcontainer::payload::Payload;
use initcontainer::step::{self, Step};
use runtime_config::{Engine, Options, Plan, is_running};

use super::{pod_status, release_installer_lock};
use crate::output::{InstalledRelease, Output};
use crate::{restart, running_services, selinux};

/// The input of an installation or upgrade.
pub(super) struct Request {
    pub(super) payload: Payload,
    pub(super) engines: Vec<(Engine, Options)>,
    pub(super) names: OfferedNames,
    /// Whether the release may have fewer class files than the installed one.
    pub(super) fewer_classes: bool,
    /// Whether engines are restarted that have not read their new configuration.
    pub(super) restart: bool,
}

/// Plans an installation, and executes the plan while `lock` is held. Without a lock, as in a dry
/// run, the plan is only printed.
pub(super) fn carry_out(
    host: &Host,
    request: &Request,
    mut lock: Option<Lock>,
    output: &mut Output,
) -> Result<()> {
    let Request {
        payload,
        engines,
        names,
        ..
    } = request;
    let plan = install::plan(host, payload, engines, names, request.fewer_classes)?;
    for note in &plan.notes {
        output.report_note(note);
    }
    output.set_installed(describe_release(host, payload, &plan));
    if lock.is_none() {
        show_steps(&plan.steps, output);
        let due = plan
            .engines
            .iter()
            .filter(|p| restart::would_need_restart(host, p));
        let due: Vec<Engine> = due.map(|plan| plan.engine).collect();
        let offers = find_offers(host, payload, names);
        output.set_next_commands(next_commands(host, &plan, &due, &offers));
        return Ok(());
    }
    pod_status::report_notes(&plan.notes);
    step::run(host, &plan.steps, |step| {
        let made_root =
            matches!(step, Step::MakeTree { path, .. } if host.programs().starts_with(path));
        if let Some(lock) = lock.as_mut().filter(|_| made_root) {
            lock.extend(host)?;
        }
        output.report_step(step);
        Ok(())
    })?;
    if let Some(lock) = lock {
        release_installer_lock(lock, output);
    }
    show_links(&plan.steps, output);
    selinux::label(host, &payload.version, &plan.steps, output)?;
    running_services::start_services(host, &plan.steps, &payload.origin.services, output)?;
    output.print_text(&format_summary(host, payload, &plan));
    let due = restart_engines(host, &plan.engines, request.restart, output)?;
    let offers = find_offers(host, payload, names);
    let next = next_commands(host, &plan, &due, &offers);
    let lines: String = next.iter().map(|line| format!("  {line}\n")).collect();
    output.print_text(&format!("\nnext:\n{lines}"));
    output.set_next_commands(next);
    Ok(())
}

/// Prints the steps of a dry run.
pub(super) fn show_steps(steps: &[Step], output: &mut Output) {
    steps.iter().for_each(|step| output.report_step(step));
    if steps.is_empty() {
        output.print_text("nothing to do\n");
    }
    show_links(steps, output);
}

/// Prints the number of links to manual pages and completions, which are not printed one by one.
pub(super) fn show_links(steps: &[Step], output: &Output) {
    if let Some(links) = step::shared_links(steps) {
        output.print_text(&format!("{links}\n"));
    }
}

fn describe_release(
    host: &Host,
    payload: &Payload,
    plan: &install::Installation,
) -> InstalledRelease {
    let classes = payload.classes();
    let classes = classes.iter().map(|name| name.trim_end_matches(".toml"));
    InstalledRelease {
        version: payload.version.clone(),
        directory: host.programs().to_owned(),
        classes: classes.map(str::to_owned).collect(),
        engines: plan.engines.iter().map(|plan| plan.engine).collect(),
    }
}

fn format_summary(host: &Host, payload: &Payload, plan: &install::Installation) -> String {
    if plan.steps.is_empty() {
        return "nothing to do: everything is installed and configured\n".into();
    }
    let engines: Vec<_> = plan.engines.iter().map(|plan| plan.engine.name()).collect();
    let engines = match engines.as_slice() {
        [] => "none".to_owned(),
        names => names.join(", "),
    };
    format!(
        "\nboathook {} is installed in {}\nclasses: {}\nengines: {engines}\n",
        payload.version,
        host.programs().display(),
        payload.classes().len(),
    )
}

/// Restarts the engines that have not read their new configuration, if `--restart` was given.
/// Otherwise returns these engines.
fn restart_engines(
    host: &Host,
    plans: &[Plan],
    restart: bool,
    output: &mut Output,
) -> Result<Vec<Engine>> {
    let due: Vec<&Plan> = plans
        .iter()
        .filter(|plan| restart::needs_restart(host, plan))
        .collect();
    if !restart {
        return Ok(due.iter().map(|plan| plan.engine).collect());
    }
    for plan in due {
        output.report_restart(plan.engine, restart::restart_engine(host, plan)?);
    }
    Ok(Vec::new())
}

/// Returns the commands that the operator should run next.
fn next_commands(
    host: &Host,
    plan: &install::Installation,
    due: &[Engine],
    offers: &[(String, String)],
) -> Vec<String> {
    let link = Path::new(LINKS).join("boathook");
    let is_packaged = host.exists(&Path::new(PACKAGED).join("boathook"));
    let linked =
        is_packaged || host.exists(&link) || plan.steps.iter().any(|step| step.path() == link);
    let commands = host.commands();
    let boathook = if linked {
        Path::new("boathook")
    } else {
        &commands
    }
    .display();
    let mut commands: Vec<String> = due
        .iter()
        .map(|engine| restart::restart_command(*engine, false))
        .collect();
    if plan.changes_programs_of_docker && is_running(host, Engine::Docker) {
        commands.push(format!(
            "{}   # it looks for programs for --gpus only when it starts",
            restart::restart_command(Engine::Docker, true)
        ));
    }
    commands.push(format!("{boathook} list"));
    for engine in plan.engines.iter().map(|plan| plan.engine) {
        // CDI names for `--device` also work with rootless podman, and without the hook in the
        // hooks directory.
        if engine == Engine::Podman {
            commands.push(format!(
                "{boathook} cdi generate   # then: podman run --device KIND=NAME, with the names of \
                 `{boathook} cdi list`"
            ));
        }
        commands.extend(engine.facts().example.map(str::to_owned));
    }
    for (toolkit, devices) in offers {
        commands.push(format!(
            "boathook-init install --as {toolkit}   # {devices} under that toolkit's names, such \
             as --runtime {toolkit}"
        ));
    }
    commands
}
