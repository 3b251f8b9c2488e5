//! The commands: plan, print or do, and tell what is left to be done.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use initcontainer::layout::{HOOK, ROOT, RUNTIME, record};
use initcontainer::lock::Lock;
use initcontainer::payload::Payload;
use initcontainer::status::Status;
use initcontainer::step::{self, Step};
use initcontainer::{Error, install, uninstall};
use runtime_config::{Engine, HostRoot, Loaded, Options, Plan, Record, Reload, loaded};

use crate::cli::{Cli, Command, EngineChoice, Install};

/// Runs a command; gives whether all is well.
pub(crate) fn run(cli: Cli) -> Result<bool> {
    let host = HostRoot::new(cli.host_root);
    match cli.command {
        Command::Install(args) => install(&host, &args).map(|()| true),
        Command::Status { json } => status(&host, json),
        Command::Uninstall {
            engine,
            dry_run,
            restart,
            force,
        } => uninstall(
            &host,
            &engine,
            Run {
                dry: dry_run,
                restart,
            },
            force,
        )
        .map(|()| true),
    }
}

#[derive(Clone, Copy)]
struct Run {
    dry: bool,
    restart: bool,
}

fn install(host: &HostRoot, args: &Install) -> Result<()> {
    let source = args.source.clone().map_or_else(beside_program, Ok)?;
    let classes = args.classes.as_deref();
    let payload = Payload::read(env!("CARGO_PKG_VERSION"), &source, classes)?;
    let read = |path: &PathBuf| {
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
    };
    let options = Options {
        hook: HOOK.into(),
        runtime: RUNTIME.into(),
        set_default: args.set_default,
        base_spec: args.base_spec.as_ref().map(read).transpose()?,
    };
    let run = Run {
        dry: args.dry_run,
        restart: args.restart,
    };
    let mut lock = if run.dry {
        None
    } else {
        Some(Lock::take(host)?)
    };
    let engines = choose(host, &args.engine, &options)?;
    let plan = install::plan(host, &payload, &engines, &options)?;
    carry_out(host, &plan.steps, run, lock.as_mut())?;
    drop(lock);
    follow_up(host, &plan.engines, run)
}

fn uninstall(host: &HostRoot, also: &[Engine], run: Run, force: bool) -> Result<()> {
    let lock = if run.dry {
        None
    } else {
        Some(Lock::take(host)?)
    };
    // After it the records are gone that tell what an engine has loaded.
    let plan = uninstall::plan(host, also, force)?;
    carry_out(host, &plan.steps, run, None)?;
    drop(lock);
    if let Some(kept) = &plan.kept {
        println!("kept {}: it was edited", kept.display());
    }
    follow_up(host, &plan.engines, run)
}

fn status(host: &HostRoot, json: bool) -> Result<bool> {
    let status = Status::read(host)?;
    if json {
        println!("{}", serde_json::to_string_pretty(&status)?);
    } else {
        print!("{status}");
    }
    Ok(status.is_complete())
}

/// The directory above the one that this program is in.
fn beside_program() -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    let dir = program.parent().and_then(Path::parent);
    dir.map(Path::to_path_buf)
        .context("this program is in no directory: use --source")
}

/// The engines to configure. Among those that were merely found, one that
/// starts no pods is passed over.
fn choose(host: &HostRoot, choice: &EngineChoice, options: &Options) -> Result<Vec<Engine>> {
    if let EngineChoice::Named(engines) = choice {
        return Ok(engines.clone());
    }
    let mut chosen = Vec::new();
    for engine in Engine::ALL.into_iter().filter(|e| e.detect(host).is_some()) {
        let known = Record::load(host, &record(engine))?;
        let now = engine.read(host, known.as_ref())?;
        match engine.plan_install(&now, known.as_ref(), options) {
            Err(e @ runtime_config::Error::CriDisabled { .. }) => {
                println!("{engine}: left out: {e}")
            }
            _ => chosen.push(engine),
        }
    }
    if chosen.is_empty() {
        let known = Engine::ALL.map(Engine::name).join(", ");
        return Err(Error::NoEngine {
            root: host.as_path().into(),
            known,
        }
        .into());
    }
    Ok(chosen)
}

fn carry_out(host: &HostRoot, steps: &[Step], run: Run, mut lock: Option<&mut Lock>) -> Result<()> {
    if steps.is_empty() {
        println!("nothing to do");
    }
    if run.dry {
        steps.iter().for_each(|step| print!("{step}"));
        return Ok(());
    }
    step::run(host, steps, |step| {
        let made_root =
            matches!(step, Step::MakeTree { path, .. } if Path::new(ROOT).starts_with(path));
        if let Some(lock) = lock.as_mut().filter(|_| made_root) {
            lock.extend(host)?;
        }
        print!("{step}");
        Ok(())
    })?;
    Ok(())
}

/// Restarts the engines that have not taken up the change, or tells how.
fn follow_up(host: &HostRoot, plans: &[Plan], run: Run) -> Result<()> {
    if run.dry {
        return Ok(());
    }
    let stale = |plan: &&Plan| match &plan.record {
        Some(record) => loaded(host, plan.engine, record) == Loaded::No,
        None => !plan.is_empty() && plan.engine.reload() != Reload::NotNeeded,
    };
    let engines: Vec<Engine> = plans.iter().filter(stale).map(|plan| plan.engine).collect();
    if engines.is_empty() || !run.restart {
        engines
            .iter()
            .for_each(|engine| println!("{engine}: {}", advice(*engine)));
        return Ok(());
    }
    if host.as_path() != Path::new("/") {
        let root = host.as_path();
        nix::unistd::chroot(root)
            .and_then(|()| nix::unistd::chdir("/"))
            .with_context(|| format!("cannot make {} the root", root.display()))?;
    }
    for engine in engines {
        let done = runtime_config::reload(engine)
            .with_context(|| format!("{engine} is configured but not restarted"))?;
        println!("{engine}: {done}");
    }
    Ok(())
}

fn advice(engine: Engine) -> String {
    match engine.reload() {
        Reload::NotNeeded => "nothing to be restarted".into(),
        Reload::Restart(units) => {
            format!("to take it up: systemctl try-restart {}", units.join(" "))
        }
        Reload::Hangup { unit, .. } => format!("to take it up: systemctl reload {unit}"),
    }
}
