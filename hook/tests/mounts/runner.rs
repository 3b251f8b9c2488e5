//! Starts a process for each case and says how it went.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::hidden::Calls;
use crate::scene::Scene;
use crate::{cases, loader_files, race, refusals, timing, user_namespace, volumes};

/// A case gets a scene on which nothing has happened yet.
pub(crate) type Case = fn(&Scene) -> Result<()>;

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
    let all = if args.contains(&"--ignored") {
        vec![&("timing", timing::timing as Case)]
    } else {
        GROUPS.into_iter().flatten().collect()
    };
    let cases: Vec<(&str, Calls)> = all
        .into_iter()
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
    let mut failed = 0;
    for (name, calls) in cases {
        match start(name, calls) {
            Ok(said) => println!("test {name} ({calls}) ... ok{said}"),
            Err(error) => {
                failed += 1;
                println!("test {name} ({calls}) ... FAILED\n    {error:#}");
            }
        }
    }
    println!("{failed} failed");
    ExitCode::from(u8::from(failed > 0))
}

/// What this process does for one case.
pub(crate) fn run_case(name: &str, calls: &str, base: &str) -> Result<()> {
    let timing = ("timing", timing::timing as Case);
    let mut all = GROUPS.into_iter().flatten().chain([&timing]);
    let (_, case) = all
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
