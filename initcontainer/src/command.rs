//! The commands: plan, print or carry out, and print what is left to do.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use initcontainer::cli::{Cli, Command, EngineChoice, Install, Uninstall};
use initcontainer::layout::{COMMANDS, HOOK, LINKS, ROOT, RUNTIME, record};
use initcontainer::lock::Lock;
use initcontainer::payload::{ClassFiles, Payload};
use initcontainer::status::Status;
use initcontainer::step::{self, Step};
use initcontainer::{configuration, install, uninstall};
use nix::sys::signal::{SigSet, Signal};
use runtime_config::{Engine, HeldRuntime, HostRoot, Options, Plan, Record, held};

use crate::output::{Installed, Output};
use crate::restart;

/// Runs a command; returns whether all is well.
pub(crate) fn run(cli: Cli) -> Result<bool> {
    let host = HostRoot::open(cli.host_root)?;
    let output = |dry_run| Output::new(cli.json, cli.verbose, dry_run);
    match cli.command {
        Command::Install(args) => {
            let mut output = output(args.dry_run);
            install(&host, &args, &mut output)?;
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

/// Waits for a signal that ends processes. The first process of a container would
/// ignore it, and be killed after its grace period.
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
    let source = args.source.clone().map_or_else(own_source, Ok)?;
    let classes = match &args.classes {
        Some(dir) if dir.as_os_str() == "none" => ClassFiles::None,
        Some(dir) => ClassFiles::From(dir),
        None => ClassFiles::OfSource,
    };
    let mut payload = Payload::read(env!("CARGO_PKG_VERSION"), &source, classes)?;
    if let Some(dir) = &args.own_classes {
        payload = payload.with_own_classes(&source, dir)?;
    }
    if let Some(file) = &args.config {
        payload = payload.with_config(file)?;
    }
    let read = |path: &PathBuf| {
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
    };
    let options = Options {
        hook: HOOK.into(),
        runtime: RUNTIME.into(),
        set_default: args.set_default,
        real_runtime: match args.set_default {
            true => configuration::real_runtime(host, &payload)?,
            false => None,
        },
        base_spec: args.base_spec.as_ref().map(read).transpose()?,
    };
    let mut lock = (!args.dry_run).then(|| Lock::take(host)).transpose()?;
    let engines = choose(host, &args.engine, &options, output)?;
    let fewer = args.classes.is_some();
    let plan = install::plan(host, &payload, &engines, &options, fewer)?;
    for note in &plan.notes {
        output.note(note);
    }
    output.installed(installed(&payload, &plan));
    if args.dry_run {
        show_steps(&plan.steps, output);
        let due = plan
            .engines
            .iter()
            .filter(|p| restart::would_be_due(host, p));
        let due: Vec<Engine> = due.map(|plan| plan.engine).collect();
        output.next(next_commands(host, &plan, &due));
        return Ok(());
    }
    step::run(host, &plan.steps, |step| {
        let made_root =
            matches!(step, Step::MakeTree { path, .. } if Path::new(ROOT).starts_with(path));
        if let Some(lock) = lock.as_mut().filter(|_| made_root) {
            lock.extend(host)?;
        }
        output.step(step);
        Ok(())
    })?;
    if let Some(lock) = lock {
        release(lock, output);
    }
    show_links(&plan.steps, output);
    output.text(&summary(&payload, &plan));
    let due = follow_up(host, &plan.engines, args.restart, output)?;
    let next = next_commands(host, &plan, &due);
    let lines: String = next.iter().map(|line| format!("  {line}\n")).collect();
    output.text(&format!("\nnext:\n{lines}"));
    output.next(next);
    Ok(())
}

/// Prints what a dry run would do.
fn show_steps(steps: &[Step], output: &mut Output) {
    steps.iter().for_each(|step| output.step(step));
    if steps.is_empty() {
        output.text("nothing to do\n");
    }
    show_links(steps, output);
}

/// Prints what the lines about single steps leave out.
fn show_links(steps: &[Step], output: &Output) {
    if let Some(links) = step::shared_links(steps) {
        output.text(&format!("{links}\n"));
    }
}

fn uninstall(host: &HostRoot, args: &Uninstall, output: &mut Output) -> Result<()> {
    let named = args.engine.as_ref().map(|names| names.0.as_slice());
    let (also, force) = (named.unwrap_or_default(), args.force);
    if args.dry_run {
        let plan = uninstall::plan(host, also, force)?;
        show_steps(&plan.steps, output);
        for kept in &plan.kept {
            output.report_kept(kept);
        }
        note_stranded(&plan.stranded, output);
        let due = plan
            .engines
            .iter()
            .filter(|plan| restart::is_due(host, plan));
        output.next(due.map(|plan| restart::advice(plan.engine, true)).collect());
        return Ok(());
    }
    check_user(host)?;
    let lock = Lock::take(host)?;
    // Refuses before anything is changed.
    uninstall::plan(host, also, force)?;
    let mut released = Vec::new();
    for engine in Engine::ALL {
        if args.restart && restart::release(host, engine)? {
            output.restarted(engine, "dropped the runtime".to_owned());
            released.push(engine);
        } else if !force && held(host, engine) == HeldRuntime::DefaultRuntime {
            bail!(
                "{engine} is running with boathook-runtime as its default runtime and would keep \
                 it, so that no container starts; use --restart, which restores its own runtime"
            );
        }
    }
    let plan = uninstall::plan(host, also, force)?;
    step::run(host, &plan.steps, |step| {
        output.step(step);
        Ok(())
    })?;
    release(lock, output);
    show_links(&plan.steps, output);
    for kept in &plan.kept {
        output.report_kept(kept);
    }
    note_stranded(&plan.stranded, output);
    if plan.steps.is_empty() {
        output.text("nothing to do\n");
    } else {
        output.text("boathook is uninstalled\n");
    }
    let engines = plan.engines.iter();
    let left = engines.filter(|plan| !released.contains(&plan.engine));
    let mut next = Vec::new();
    for plan in left.filter(|plan| restart::is_due(host, plan)) {
        if args.restart {
            output.restarted(plan.engine, restart::now(host, plan)?);
        } else {
            let advice = restart::advice(plan.engine, true);
            output.text(&format!("next: {advice}\n"));
            next.push(advice);
        }
    }
    output.next(next);
    Ok(())
}

/// What is done is done, even if a file of the lock stays.
fn release(lock: Lock, output: &mut Output) {
    if let Err(error) = lock.release() {
        output.note(&format!(
            "{error}; the next run of boathook-init removes it"
        ));
    }
}

fn note_stranded(names: &[String], output: &mut Output) {
    if !names.is_empty() {
        output.note(&format!(
            "docker: these containers have the runtime boathook and cannot be started without it: \
             {}; create them again",
            names.join(", ")
        ));
    }
}

fn status(host: &HostRoot, json: bool) -> Result<bool> {
    let status = Status::read(host)?;
    match json {
        true => command_line::print_json(&status)?,
        false => command_line::print(&status.to_string())?,
    }
    Ok(status.is_complete())
}

/// Fails at once, with one message, where every step would fail.
fn check_user(host: &HostRoot) -> Result<()> {
    let user = nix::unistd::geteuid();
    let owner = host.stat(Path::new("/")).map(|stat| stat.st_uid);
    ensure!(
        user.is_root() || owner == Some(user.as_raw()),
        "must be run as root, such as with sudo"
    );
    Ok(())
}

/// The release, or the directory of a build, that this program is part of.
fn own_source() -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot find this program's own path")?;
    let dir = program
        .parent()
        .context("cannot determine the directory of this program; use --source")?;
    let release = dir.parent().filter(|_| dir.ends_with("bin"));
    Ok(release.unwrap_or(dir).to_path_buf())
}

/// The engines to configure. Among those that were merely found, one that
/// starts no pods is passed over.
fn choose(
    host: &HostRoot,
    choice: &EngineChoice,
    options: &Options,
    output: &mut Output,
) -> Result<Vec<Engine>> {
    if let EngineChoice::Named(engines) = choice {
        // A container that has only the engine's directories sees none of its programs.
        let sees_programs = host.is_dir(Path::new("/usr/bin"));
        let absent = |engine: &&Engine| sees_programs && engine.detect(host).is_none();
        for engine in engines.iter().filter(absent) {
            output.note(&format!(
                "{engine}: no program of it was found under {}; it is configured nevertheless, \
                 and `boathook-init uninstall` reverts it",
                host.as_path().display()
            ));
        }
        return Ok(engines.clone());
    }
    let mut chosen = Vec::new();
    for engine in Engine::ALL.into_iter().filter(|e| e.detect(host).is_some()) {
        let known = Record::load(host, &record(engine))?;
        let now = engine.read(host, known.as_ref())?;
        match engine.plan_install(&now, known.as_ref(), options) {
            Err(e @ runtime_config::Error::CriDisabled { .. }) => {
                output.note(&format!("{engine}: left out: {e}"));
            }
            _ => chosen.push(engine),
        }
    }
    if chosen.is_empty() {
        let known = Engine::ALL.map(Engine::name).join(", ");
        output.note(&format!(
            "no engine to configure was found under {}: name one with --engine ({known}), or \
             use CDI (docs/cdi.md)",
            host.as_path().display()
        ));
    }
    Ok(chosen)
}

fn installed(payload: &Payload, plan: &install::Installation) -> Installed {
    let classes = payload.classes();
    let classes = classes.iter().map(|name| name.trim_end_matches(".toml"));
    Installed {
        version: payload.version.clone(),
        directory: ROOT,
        classes: classes.map(str::to_owned).collect(),
        engines: plan.engines.iter().map(|plan| plan.engine).collect(),
    }
}

fn summary(payload: &Payload, plan: &install::Installation) -> String {
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

/// Restarts the engines that have not read their configuration, if that is
/// wanted; returns those that still must be restarted.
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
        output.restarted(plan.engine, restart::now(host, plan)?);
    }
    Ok(Vec::new())
}

/// What the operator does next.
fn next_commands(host: &HostRoot, plan: &install::Installation, due: &[Engine]) -> Vec<String> {
    let link = Path::new(LINKS).join("boathook");
    let linked = host.exists(&link) || plan.steps.iter().any(|step| step.path() == link);
    let boathook = if linked { "boathook" } else { COMMANDS };
    let mut commands: Vec<String> = due
        .iter()
        .map(|engine| restart::advice(*engine, false))
        .collect();
    commands.push(format!("{boathook} list"));
    commands.extend(
        plan.engines
            .iter()
            .filter_map(|plan| plan.engine.facts().example)
            .map(str::to_owned),
    );
    commands
}
