//! Starts a process for each case and says how it went.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

use anyhow::{Context, Result};

use crate::hidden::Calls;
use crate::scene::Scene;
use crate::{cases, loader_files, race, refusals, user_namespace, volumes};

/// A case gets a scene on which nothing has happened yet.
pub(crate) type Case = fn(&Scene) -> Result<()>;

/// How many cases run at once: most of them wait for processes.
const AT_ONCE: usize = 4;

const GROUPS: [&[(&str, Case)]; 6] = [
    cases::ALL,
    refusals::ALL,
    user_namespace::ALL,
    volumes::ALL,
    loader_files::ALL,
    race::ALL,
];

/// Runs the cases whose names contain one of the filters.
pub(crate) fn run_all(args: &[&str]) -> ExitCode {
    let filters: Vec<&str> = args
        .iter()
        .copied()
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let selected =
        |name: &str| filters.is_empty() || filters.iter().any(|part| name.contains(part));
    let cases: Vec<(&str, Calls)> = GROUPS
        .into_iter()
        .flatten()
        .flat_map(|(name, _)| Calls::ALL.map(|calls| (*name, calls)))
        .filter(|(name, _)| selected(name))
        .collect();
    if args.contains(&"--list") {
        for (name, calls) in cases {
            println!("{name} ({calls}): test");
        }
        return ExitCode::SUCCESS;
    }
    if let Err(reason) = Scene::possible() {
        skip::report(
            &format!("{} cases of mounts", cases.len()),
            &format!("{reason:#}"),
        );
        return ExitCode::SUCCESS;
    }
    let failed = AtomicU8::new(0);
    let left = Mutex::new(cases.into_iter());
    let work = || {
        while let Some((name, calls)) = next(&left) {
            match start(name, calls) {
                Ok(said) => println!("test {name} ({calls}) ... ok{said}"),
                Err(error) => {
                    failed.fetch_add(1, Ordering::Relaxed);
                    println!("test {name} ({calls}) ... FAILED\n    {error:#}");
                }
            }
        }
    };
    thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(work))));
    let failed = failed.into_inner();
    println!("{failed} failed");
    ExitCode::from(failed.min(1))
}

fn next<T>(left: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    left.lock().ok()?.next()
}

/// What this process does for one case.
pub(crate) fn run_case(name: &str, calls: &str, base: &str) -> Result<()> {
    let (_, case) = GROUPS
        .into_iter()
        .flatten()
        .find(|(known, _)| *known == name)
        .context("no such case")?;
    let calls: Calls = calls.parse()?;
    case(&Scene::new(Path::new(base), calls)?)
}

fn start(name: &str, calls: Calls) -> Result<String> {
    let base = tempfile::tempdir()?;
    let output = Command::new(std::env::current_exe()?)
        .args(["--as-case", name, &calls.to_string()])
        .arg(base.path())
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr).into_owned();
        anyhow::bail!("{}: {said}{}", output.status, reason.trim_end());
    }
    // It was mounted on in the case's own namespace only.
    base.close().context("the case has left something behind")?;
    Ok(said)
}
