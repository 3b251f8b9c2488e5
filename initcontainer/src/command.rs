//! Runs the commands. A command makes a plan, prints it or carries it out, and then prints what
//! the operator has to do next.

mod engines;
mod upgrade;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use initcontainer::cli::{Cli, Command, Install, Uninstall};
use initcontainer::compatibility::{OfferedNames, find_offers};
use initcontainer::layout::{COMMANDS, CONFIG, HOOK, LINKS, PACKAGED, ROOT, RUNTIME};
use initcontainer::lock::Lock;
use initcontainer::manifest::Manifest;
use initcontainer::payload::{ClassFiles, NO_CLASSES, Payload};
use initcontainer::recorded_options::EngineOptions;
use initcontainer::status::Status;
use initcontainer::step::{self, Step};
use initcontainer::{configuration, install, uninstall};
use nix::sys::signal::{SigSet, Signal};
use release_lock::ReleaseLock;
use runtime_config::{Engine, HostRoot, Options, Plan, RuntimeUse, find_runtime_use, is_running};

use crate::output::{InstalledRelease, Output};
use crate::{restart, running_services};

/// Runs a command. Returns whether it was successful and found nothing missing.
pub(crate) fn run(cli: Cli) -> Result<bool> {
    let _release_lock = take_release_lock(&cli)?;
    let host = HostRoot::open(cli.host_root)?;
    let output = |dry_run| Output::new(cli.json, cli.verbose, dry_run);
    match cli.command {
        Command::Install(args) => {
            let mut output = output(args.dry_run);
            install(&host, &args, &mut output)?;
            output.finish();
        }
        Command::Upgrade(args) => {
            let mut output = output(args.dry_run);
            upgrade::upgrade(&host, &args, &mut output)?;
            output.finish();
        }
        Command::Uninstall(args) => {
            let mut output = output(args.dry_run);
            uninstall(&host, &args, &mut output)?;
            output.finish();
        }
        Command::Status => return status(&host, cli.json),
        Command::Wait => wait()?,
    }
    Ok(true)
}

/// Takes the lock of the release that the command names, before the host is changed. The plugin
/// of the same release takes it too, and keeps it as long as it runs.
fn take_release_lock(cli: &Cli) -> Result<Option<ReleaseLock>> {
    let release = match &cli.command {
        Command::Install(args) if !args.dry_run => args.release.as_ref(),
        Command::Uninstall(args) if !args.dry_run => args.release.as_ref(),
        _ => None,
    };
    let lock = release.map(|release| ReleaseLock::take_to_install(&cli.host_root, release));
    Ok(lock.transpose()?)
}

/// Waits for SIGTERM or SIGINT. The first process of a container ignores these signals by
/// default, and would be killed only after the pod's grace period.
fn wait() -> Result<()> {
    let signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
    signals.thread_block().context("cannot block signals")?;
    signals.wait().context("cannot wait for a signal")?;
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the user names the file, and waits"
)]
fn install(host: &HostRoot, args: &Install, output: &mut Output) -> Result<()> {
    check_user(host)?;
    let source = find_source(args.source.as_deref())?;
    // The recorded paths must lead to the same directories from another working directory.
    let classes_dir = args.classes.as_deref().map(std::path::absolute);
    let classes_dir = classes_dir.transpose()?;
    let classes = match &classes_dir {
        Some(_) if args.classes.as_deref() == Some(Path::new(NO_CLASSES)) => ClassFiles::None,
        Some(dir) => ClassFiles::From(dir),
        None => ClassFiles::OfSource,
    };
    let mut payload = read_payload(host, &source, classes)?;
    if let Some(dir) = &args.own_classes {
        payload = payload.with_own_classes(&source, &std::path::absolute(dir)?)?;
    }
    if let Some(file) = &args.config {
        let installed = host.read(Path::new(CONFIG))?;
        payload = payload.with_config(file, installed.is_some())?;
    }
    let read = |path: &PathBuf| {
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
    };
    let names = OfferedNames::find(&payload, &args.toolkits)?;
    let options = EngineOptions {
        set_default: args.set_default,
        base_spec: args.base_spec.as_ref().map(read).transpose()?,
    };
    let options = complete_options(host, &payload, &names, options)?;
    let lock = (!args.dry_run).then(|| Lock::take(host)).transpose()?;
    let engines = engines::choose(host, &args.engine, &options, output)?;
    let payload = payload.with_services(&source, args.services())?;
    let request = Request {
        payload,
        engines: engines
            .into_iter()
            .map(|engine| (engine, options.clone()))
            .collect(),
        names,
        fewer_classes: args.classes.is_some(),
        restart: args.restart,
    };
    carry_out(host, &request, lock, output)
}

/// Reads the release in `source`.
fn read_payload(host: &HostRoot, source: &Path, classes: ClassFiles<'_>) -> Result<Payload> {
    let version = Payload::find_version(source)?;
    let version = version.as_deref().unwrap_or(env!("CARGO_PKG_VERSION"));
    let mut payload = Payload::read(version, source, classes)?;
    if host.as_path() != Path::new("/") {
        payload.origin.source = None;
    }
    Ok(payload)
}

/// Returns the settings for an engine's configuration that follow from the options.
fn complete_options(
    host: &HostRoot,
    payload: &Payload,
    names: &OfferedNames,
    options: EngineOptions,
) -> Result<Options> {
    Ok(Options {
        more_names: names.runtimes.clone(),
        hook: HOOK.into(),
        runtime: RUNTIME.into(),
        set_default: options.set_default,
        real_runtime: if options.set_default {
            configuration::real_runtime(host, payload)?
        } else {
            None
        },
        base_spec: options.base_spec,
    })
}

/// The release and the engines of an installation or of an upgrade.
struct Request {
    payload: Payload,
    engines: Vec<(Engine, Options)>,
    names: OfferedNames,
    /// Whether the release may have fewer classes than the installed one.
    fewer_classes: bool,
    /// Whether engines that have not read their configuration are restarted.
    restart: bool,
}

/// Makes the plan of an installation, prints it or carries it out, and prints what the operator
/// has to do next. Without the lock, which a dry run does not take, nothing is changed.
fn carry_out(
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
fn show_steps(steps: &[Step], output: &mut Output) {
    steps.iter().for_each(|step| output.report_step(step));
    if steps.is_empty() {
        output.print_text("nothing to do\n");
    }
    show_links(steps, output);
}

/// Prints the number of links to manual pages and completions. These links have no lines of
/// their own.
fn show_links(steps: &[Step], output: &Output) {
    if let Some(links) = step::shared_links(steps) {
        output.print_text(&format!("{links}\n"));
    }
}

/// Returns a description of the place from which the installation was made, if that is not
/// `expected`.
fn find_other_source(manifest: &Manifest, expected: &Path) -> Option<String> {
    match manifest.options.source.as_deref() {
        Some(source) if source == expected => None,
        Some(source) => Some(source.display().to_string()),
        None => Some("an image".into()),
    }
}

fn uninstall(host: &HostRoot, args: &Uninstall, output: &mut Output) -> Result<()> {
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
            .filter(|plan| restart::is_due(host, plan));
        output.set_next_commands(due.map(|plan| restart::advice(plan.engine, true)).collect());
        return Ok(());
    }
    check_user(host)?;
    let lock = Lock::take(host)?;
    // The plan is made once before the engines are released, so that a refusal comes before any
    // change.
    uninstall::plan(host, also, force)?;
    let mut released = Vec::new();
    for engine in Engine::ALL {
        if args.restart && restart::release(host, engine)? {
            output.report_restart(engine, "dropped the runtime".to_owned());
            released.push(engine);
        } else if !force && find_runtime_use(host, engine) == RuntimeUse::DefaultRuntime {
            bail!(
                "{engine} is running with boathook-runtime as its default runtime and would keep \
                 it, so that no container starts; use --restart, which restores its own runtime"
            );
        }
    }
    running_services::stop(host, output)?;
    let mut plan = uninstall::plan(host, also, force)?;
    let labels = uninstall::remove_labels(host, &args.node_labels)?;
    plan.steps.splice(0..0, labels);
    step::run(host, &plan.steps, |step| {
        output.report_step(step);
        Ok(())
    })?;
    release(lock, output);
    show_links(&plan.steps, output);
    for kept in &plan.kept {
        output.report_kept(kept);
    }
    note_stranded(&plan.stranded, output);
    if plan.steps.is_empty() {
        output.print_text("nothing to do\n");
    } else {
        running_services::forget(host, &plan.steps, output)?;
        output.print_text("boathook is uninstalled\n");
    }
    let engines = plan.engines.iter();
    let left = engines.filter(|plan| !released.contains(&plan.engine));
    let mut next = Vec::new();
    for plan in left.filter(|plan| restart::is_due(host, plan)) {
        if args.restart {
            output.report_restart(plan.engine, restart::restart(host, plan)?);
        } else {
            let advice = restart::advice(plan.engine, true);
            output.print_text(&format!("next: {advice}\n"));
            next.push(advice);
        }
    }
    output.set_next_commands(next);
    Ok(())
}

/// Releases the lock. A failure is only reported, because the command itself was successful.
fn release(lock: Lock, output: &mut Output) {
    if let Err(error) = lock.release() {
        output.report_note(&format!(
            "{error}; the next run of boathook-init removes it"
        ));
    }
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

fn status(host: &HostRoot, json: bool) -> Result<bool> {
    let status = Status::read(host)?;
    if json {
        command_line::print_json(&status)?;
    } else {
        command_line::print(&status.to_string())?;
    }
    Ok(status.is_complete())
}

/// Returns an error if this user cannot change the host. Without this check every step would
/// fail with its own message.
fn check_user(host: &HostRoot) -> Result<()> {
    let user = nix::unistd::geteuid();
    let owner = host.stat(Path::new("/")).map(|stat| stat.st_uid);
    ensure!(
        user.is_root() || owner == Some(user.as_raw()),
        "must be run as root, such as with sudo"
    );
    Ok(())
}

/// Returns the absolute path of the release to install: the directory that was named, or the one
/// that contains this program.
fn find_source(named: Option<&Path>) -> Result<PathBuf> {
    match named {
        Some(dir) => Ok(std::path::absolute(dir)?),
        None => own_source(),
    }
}

/// Returns the directory of the release, or of the build, that contains this program.
fn own_source() -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot find this program's own path")?;
    let dir = program
        .parent()
        .context("cannot determine the directory of this program; use --source")?;
    let release = dir.parent().filter(|_| dir.ends_with("bin"));
    Ok(release.unwrap_or(dir).to_path_buf())
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
