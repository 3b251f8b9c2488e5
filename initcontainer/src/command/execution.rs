//! Executes or prints a planned installation or upgrade, and then prints what the operator must do
//! next.

use std::path::Path;

use anyhow::Result;
use initcontainer::class_index::update_class_index;
use initcontainer::compatibility::{ReplacedToolkits, find_unoffered_toolkits};
use initcontainer::host::Host;
use initcontainer::install;
use initcontainer::layout::{PACKAGED_PROGRAMS_DIR, PROGRAM_LINKS_DIR};
use initcontainer::lock::InstallerLock;
use initcontainer::payload::Payload;
use initcontainer::step::{self, Step};
use runtime_config::{Engine, InstallOptions};

use super::{pod_status, release_installer_lock};
use crate::output::{InstalledRelease, Output};
use crate::restart::{self, PendingRestarts};
use crate::{running_services, selinux};

/// The input of an installation or upgrade. An upgrade takes it from the existing installation's
/// manifest, and `install` from the command line.
pub(super) struct InstallRequest {
    pub(super) payload: Payload,
    pub(super) engines: Vec<(Engine, InstallOptions)>,
    pub(super) names: ReplacedToolkits,
    /// Whether the new release may have fewer class files than the installed release.
    pub(super) allows_fewer_classes: bool,
    /// Whether to restart the engines that have not read their new configuration.
    pub(super) should_restart: bool,
}

/// Plans an installation, and executes the plan while `lock` is held. If `lock` is `None`, as in a
/// dry run, the plan is only printed.
pub(super) fn execute_request(
    host: &Host,
    request: &InstallRequest,
    mut lock: Option<InstallerLock>,
    output: &mut Output,
) -> Result<()> {
    let InstallRequest {
        payload,
        engines,
        names,
        ..
    } = request;
    let plan = install::plan(host, payload, engines, names, request.allows_fewer_classes)?;
    for note in &plan.notes {
        output.report_note(note);
    }
    output.set_installed_release(describe_release(host, payload, &plan));
    if lock.is_none() {
        print_steps(&plan.steps, output);
        let pending = PendingRestarts::predict(host, &plan);
        let toolkits = find_unoffered_toolkits(host, payload, names);
        let commands = list_next_commands(host, &plan, &pending, &toolkits);
        output.set_next_commands(commands);
        return Ok(());
    }
    pod_status::report_notes(&plan.notes);
    step::execute_steps(host, &plan.steps, |step| {
        let made_programs_dir =
            matches!(step, Step::MakeTree { path, .. } if host.programs_dir().starts_with(path));
        if let Some(lock) = lock.as_mut().filter(|_| made_programs_dir) {
            lock.lock_programs_dir(host)?;
        }
        output.report_step(step);
        Ok(())
    })?;
    if let Some(lock) = lock {
        release_installer_lock(lock, output);
    }
    print_link_count(&plan.steps, output);
    selinux::set_selinux_types(host, &payload.version, &plan.steps, output)?;
    if let Err(error) = update_class_index(host, payload) {
        output.report_note(&format!(
            "no class index was written, so that containers with devices start some milliseconds \
             later: {error:#}"
        ));
    }
    running_services::start_services(host, &plan.steps, &payload.options.services, output)?;
    output.print_text(&format_summary(host, payload, &plan));
    let mut pending = PendingRestarts::find(host, &plan);
    let mut failures = Vec::new();
    if request.should_restart {
        (pending, failures) = restart::restart_engines(host, &plan.engine_plans, pending, output);
    }
    let toolkits = find_unoffered_toolkits(host, payload, names);
    let commands = list_next_commands(host, &plan, &pending, &toolkits);
    let lines: String = commands.iter().map(|line| format!("  {line}\n")).collect();
    output.print_text(&format!("\nnext:\n{lines}"));
    output.set_next_commands(commands);
    restart::combine_failures(failures)
}

/// Prints the planned steps of a dry run, or that there is nothing to do.
pub(super) fn print_steps(steps: &[Step], output: &mut Output) {
    steps.iter().for_each(|step| output.report_step(step));
    if steps.is_empty() {
        output.print_text("nothing to do\n");
    }
    print_link_count(steps, output);
}

/// Prints the number of links to manual pages and completions, because the steps for these links
/// are not printed one by one.
pub(super) fn print_link_count(steps: &[Step], output: &Output) {
    if let Some(description) = step::describe_shared_link_count(steps) {
        output.print_text(&format!("{description}\n"));
    }
}

fn describe_release(
    host: &Host,
    payload: &Payload,
    plan: &install::InstallationPlan,
) -> InstalledRelease {
    let file_names = payload.class_file_names();
    let class_names = file_names.iter().map(|name| name.trim_end_matches(".toml"));
    InstalledRelease {
        version: payload.version.clone(),
        directory: host.programs_dir().to_owned(),
        classes: class_names.map(str::to_owned).collect(),
        engines: plan.engine_plans.iter().map(|plan| plan.engine).collect(),
    }
}

fn format_summary(host: &Host, payload: &Payload, plan: &install::InstallationPlan) -> String {
    if plan.steps.is_empty() {
        return "nothing to do: everything is installed and configured\n".into();
    }
    let engine_names: Vec<_> = plan
        .engine_plans
        .iter()
        .map(|plan| plan.engine.name())
        .collect();
    let engines = match engine_names.as_slice() {
        [] => "none".to_owned(),
        names => names.join(", "),
    };
    format!(
        "\nboathook {} is installed in {}\nclasses: {}\nengines: {engines}\n",
        payload.version,
        host.programs_dir().display(),
        payload.class_file_names().len(),
    )
}

/// Returns the commands that the operator should run next. `unoffered_toolkits` are the vendors'
/// toolkits that `--as` could replace on this host. Each pair is the name of a toolkit and the
/// description of its devices.
fn list_next_commands(
    host: &Host,
    plan: &install::InstallationPlan,
    pending: &PendingRestarts,
    unoffered_toolkits: &[(String, String)],
) -> Vec<String> {
    let link = Path::new(PROGRAM_LINKS_DIR).join("boathook");
    let is_packaged = host.exists(&Path::new(PACKAGED_PROGRAMS_DIR).join("boathook"));
    let is_in_path =
        is_packaged || host.exists(&link) || plan.steps.iter().any(|step| step.path() == link);
    let installed_path = host.boathook_path();
    let boathook = if is_in_path {
        Path::new("boathook")
    } else {
        &installed_path
    }
    .display();
    let mut commands: Vec<String> = pending
        .engines
        .iter()
        .map(|engine| restart::format_restart_command(host, *engine, false))
        .collect();
    if pending.needs_docker_restart {
        commands.push(format!(
            "{}   # it looks for programs for --gpus only when it starts",
            restart::format_restart_command(host, Engine::Docker, true)
        ));
    }
    commands.push(format!("{boathook} list"));
    for engine in plan.engine_plans.iter().map(|plan| plan.engine) {
        // The example uses CDI, because `--device` with CDI names works with rootless podman as
        // well, and needs no file in the hooks directory.
        if engine == Engine::Podman {
            commands.push(format!(
                "{boathook} cdi generate   # then: podman run --device KIND=NAME, with the names of \
                 `{boathook} cdi list`"
            ));
        }
        commands.extend(engine.properties().example_command.map(str::to_owned));
    }
    for (toolkit, devices) in unoffered_toolkits {
        commands.push(format!(
            "boathook-init install --as {toolkit}   # {devices} under that toolkit's names, such \
             as --runtime {toolkit}"
        ));
    }
    commands
}
