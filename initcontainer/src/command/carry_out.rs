//! Carries out a planned installation or upgrade, or prints its steps, and then prints what the
//! operator has to do next.

use std::path::Path;

use anyhow::Result;
use initcontainer::compatibility::{OfferedNames, find_offers};
use initcontainer::install;
use initcontainer::layout::{COMMANDS, LINKS, PACKAGED, ROOT};
use initcontainer::lock::Lock;
use initcontainer::payload::Payload;
use initcontainer::step::{self, Step};
use runtime_config::{Engine, HostRoot, Options, Plan, is_running};

use super::release;
use crate::output::{InstalledRelease, Output};
use crate::{restart, running_services};

/// The release and the engines of an installation or of an upgrade.
pub(super) struct Request {
    pub(super) payload: Payload,
    pub(super) engines: Vec<(Engine, Options)>,
    pub(super) names: OfferedNames,
    /// Whether the release may have fewer classes than the installed one.
    pub(super) fewer_classes: bool,
    /// Whether engines that have not read their configuration are restarted.
    pub(super) restart: bool,
}

/// Makes the plan of an installation, prints it or carries it out, and prints what the operator
/// has to do next. Without the lock, which a dry run does not take, nothing is changed.
pub(super) fn carry_out(
    host: &HostRoot,
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
    output.set_installed(describe_release(payload, &plan));
    if lock.is_none() {
        show_steps(&plan.steps, output);
        let due = plan
            .engines
            .iter()
            .filter(|p| restart::would_be_due(host, p));
        let due: Vec<Engine> = due.map(|plan| plan.engine).collect();
        let offers = find_offers(host, payload, names);
        output.set_next_commands(next_commands(host, &plan, &due, &offers));
        return Ok(());
    }
    step::run(host, &plan.steps, |step| {
        let made_root =
            matches!(step, Step::MakeTree { path, .. } if Path::new(ROOT).starts_with(path));
        if let Some(lock) = lock.as_mut().filter(|_| made_root) {
            lock.extend(host)?;
        }
        output.report_step(step);
        Ok(())
    })?;
    if let Some(lock) = lock {
        release(lock, output);
    }
    show_links(&plan.steps, output);
    running_services::start(host, &plan.steps, &payload.origin.services, output)?;
    output.print_text(&format_summary(payload, &plan));
    let due = follow_up(host, &plan.engines, request.restart, output)?;
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

/// Prints the number of links to manual pages and completions. These links have no lines of
/// their own.
pub(super) fn show_links(steps: &[Step], output: &Output) {
    if let Some(links) = step::shared_links(steps) {
        output.print_text(&format!("{links}\n"));
    }
}

fn describe_release(payload: &Payload, plan: &install::Installation) -> InstalledRelease {
    let classes = payload.classes();
    let classes = classes.iter().map(|name| name.trim_end_matches(".toml"));
    InstalledRelease {
        version: payload.version.clone(),
        directory: ROOT,
        classes: classes.map(str::to_owned).collect(),
        engines: plan.engines.iter().map(|plan| plan.engine).collect(),
    }
}

fn format_summary(payload: &Payload, plan: &install::Installation) -> String {
    if plan.steps.is_empty() {
        return "nothing to do: everything is installed and configured\n".into();
    }
    let engines: Vec<_> = plan.engines.iter().map(|plan| plan.engine.name()).collect();
    let engines = match engines.as_slice() {
        [] => "none".to_owned(),
        names => names.join(", "),
    };
    format!(
        "\nboathook {} is installed in {ROOT}\nclasses: {}\nengines: {engines}\n",
        payload.version,
        payload.classes().len(),
    )
}

/// Restarts the engines that have not read their new configuration, if `--restart` was given.
/// Returns the engines that still have to be restarted.
fn follow_up(
    host: &HostRoot,
    plans: &[Plan],
    restart: bool,
    output: &mut Output,
) -> Result<Vec<Engine>> {
    let due: Vec<&Plan> = plans
        .iter()
        .filter(|plan| restart::is_due(host, plan))
        .collect();
    if !restart {
        return Ok(due.iter().map(|plan| plan.engine).collect());
    }
    for plan in due {
        output.report_restart(plan.engine, restart::restart(host, plan)?);
    }
    Ok(Vec::new())
}

/// Returns the commands that the operator should run next.
fn next_commands(
    host: &HostRoot,
    plan: &install::Installation,
    due: &[Engine],
    offers: &[(String, String)],
) -> Vec<String> {
    let link = Path::new(LINKS).join("boathook");
    let is_packaged = host.exists(&Path::new(PACKAGED).join("boathook"));
    let linked =
        is_packaged || host.exists(&link) || plan.steps.iter().any(|step| step.path() == link);
    let boathook = if linked { "boathook" } else { COMMANDS };
    let mut commands: Vec<String> = due
        .iter()
        .map(|engine| restart::advice(*engine, false))
        .collect();
    if plan.changes_programs_of_docker && is_running(host, Engine::Docker) {
        commands.push(format!(
            "{}   # it looks for programs for --gpus only when it starts",
            restart::advice(Engine::Docker, true)
        ));
    }
    commands.push(format!("{boathook} list"));
    for engine in plan.engines.iter().map(|plan| plan.engine) {
        // Names for `--device` need no hook for every container, and work with rootless podman.
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
