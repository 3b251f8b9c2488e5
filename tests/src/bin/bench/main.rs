//! `bench [ROUNDS]` measures what the hook adds to the time of `runc create`, compared with no hook
//! and with a hook that does nothing. `bench --against PROGRAM [ROUNDS]` compares the hook with
//! another build of it. `bench --drivers [ROUNDS]` measures containers that request devices of
//! recorded drivers.
//!
//! Every round runs each kind of container once, so that other load of the machine affects all
//! kinds equally. Only the process `runc create` is timed, neither the creation of the bundle nor
//! the deletion of the container. The program prints one line per figure (name, value, unit, goal)
//! and writes the figures to target/bench/results.json.

#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

mod against;
mod crowd;
mod filesystem;
mod hook_process;
mod inside;
mod kind;
mod machine;
mod recorded;
mod rounds;
mod specification;
mod workload;
mod wrapper;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use harness::cgroup_view::CgroupView;
use harness::figure::{self, Figure};
use harness::surroundings::leave_mount_namespace;
use harness::{binaries, exit, privilege};
use serde_json::json;

use crate::kind::Kind;
use crate::machine::Machine;
use crate::workload::Workload;

/// The default number of rounds.
const ROUNDS: usize = 60;

const USAGE: &str = "usage: bench [--against PROGRAM | --drivers] [ROUNDS]";

fn main() -> ExitCode {
    exit::with("bench", run())
}

fn run() -> Result<()> {
    let mut arguments = std::env::args().skip(1).peekable();
    let against = arguments
        .next_if(|argument| argument == "--against")
        .map(|_| arguments.next().map(PathBuf::from).context(USAGE))
        .transpose()?;
    let drivers_alone = arguments.next_if(|it| it == "--drivers").is_some();
    let rounds = match arguments.next() {
        Some(argument) => argument.parse().context(USAGE)?,
        None => ROUNDS,
    };
    // Mounts made in this namespace are removed when the program ends, even after a crash.
    leave_mount_namespace().context("make bench requires root")?;
    let machine = Machine::here()?;
    println!("{machine}; {rounds} rounds");
    if let Some(warning) = machine.warning() {
        println!("{warning}");
    }
    println!();

    if drivers_alone {
        return measure_drivers(rounds);
    }
    let workload = Workload::new()?;
    if let Some(other) = against {
        return against::measure(&workload, &other, rounds);
    }
    let mut figures = vec![
        binary_size("boathook-hook", Some(1.7))?,
        binary_size("boathook-runtime", None)?,
        binary_size("boathook", None)?,
        wrapper::measure(&workload, rounds)?,
    ];
    figures.extend(hook_process::measure(rounds)?);
    let without_containers = figures.len();
    for view in CgroupView::ALL {
        match privilege::missing_for_runc(view) {
            Some(reason) => println!("skipped: {view}: {reason}"),
            None => figures.extend(measure(&workload, view, rounds)?),
        }
    }
    if figures.len() == without_containers {
        bail!("no container could be started on this machine");
    }
    println!("{}", figure::table(&figures));
    write_results(&machine, rounds, &figures)
}

/// Prints the figures of each recorded driver as soon as they are measured.
fn measure_drivers(rounds: usize) -> Result<()> {
    for view in CgroupView::ALL {
        match privilege::missing_for_runc(view) {
            Some(reason) => println!("skipped: {view}: {reason}"),
            None => println!("{}", figure::table(&recorded::measure(view, rounds)?)),
        }
    }
    Ok(())
}

/// Returns the median times with one cgroup version, and what each hook adds to them.
fn measure(workload: &Workload, view: CgroupView, rounds: usize) -> Result<Vec<Figure>> {
    workload.check(view)?;
    let wrapped = workload.wrapped(view)?;
    let times = rounds::run(&Kind::ALL, |kind| workload.bundle(kind), &wrapped, rounds)?;
    let mut figures: Vec<_> = Kind::ALL
        .into_iter()
        .map(|kind| {
            let name = format!("runc create, {kind}, {view}");
            Figure::time(&name, times.median(kind), None)
        })
        .collect();
    let added = |what, kind, base, goal| {
        let name = format!("added by {what}, {view}");
        Figure::time(&name, times.added(kind, base), goal)
    };
    for (what, kind) in [
        ("an empty hook", Kind::EmptyHook),
        ("boathook, reference work", Kind::ReferenceWork),
        ("boathook-runtime, reference work", Kind::Wrapper),
        ("thin CDI, reference work", Kind::ThinCdi),
        ("plain CDI, reference work", Kind::PlainCdi),
        ("the same work in config.json", Kind::SpecCarried),
    ] {
        figures.push(added(what, kind, Kind::NoHook, None));
    }
    let what = "boathook over an empty hook, no request";
    let over_empty = added(what, Kind::NoRequest, Kind::EmptyHook, Some(1.0));
    figures.push(over_empty);
    figures.push(Figure::new(
        &format!("reference work, hook against config.json, {view}"),
        times.added(Kind::ReferenceWork, Kind::NoHook)
            / times.added(Kind::SpecCarried, Kind::NoHook),
        "x",
        Some(1.0),
    ));
    figures.extend(inside::measure(workload, view, rounds)?);
    figures.extend(recorded::measure(view, rounds)?);
    Ok(figures)
}

fn binary_size(name: &str, goal: Option<f64>) -> Result<Figure> {
    let program = binaries::program(name)?;
    let bytes = fs::metadata(&program)
        .with_context(|| format!("cannot read {}", program.display()))?
        .len();
    let name = format!("size of {name}, stripped");
    Ok(Figure::new(&name, bytes as f64 / 1e6, "MB", goal))
}

fn write_results(machine: &Machine, rounds: usize, figures: &[Figure]) -> Result<()> {
    let directory = binaries::target_directory()?.join("bench");
    fs::create_dir_all(&directory)?;
    let file = directory.join("results.json");
    let results = json!({"machine": machine, "rounds": rounds, "figures": figures});
    fs::write(&file, serde_json::to_vec_pretty(&results)?)
        .with_context(|| format!("cannot write {}", file.display()))
}
