//! `boathook-scheduler simulate`: nodes, devices and a stream of pods, scheduled in
//! by several strategies, and the units that each of them wastes.

mod chart;
mod dice;
mod engine;
mod report;
mod scenario;
mod strategy;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;

pub use report::Outcome;
pub use scenario::Scenario;
pub use strategy::Strategy;

#[derive(Debug, Args)]
pub struct Options {
    /// The scenario, such as cluster/examples/small.toml
    file: PathBuf,

    /// Write a chart
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Print the results as JSON, and a failure as {"error": ...}
    #[arg(long)]
    pub(super) json: bool,
}

/// Simulates a file's scenario, and prints the results.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let scenario = Scenario::read(&options.file)?;
    let outcomes = simulate(&scenario);
    if let Some(path) = &options.svg {
        write_chart(path, &outcomes)?;
    }
    command_line::print(&match options.json {
        true => format!("{:#}\n", report::json(&scenario, &outcomes)),
        false => report::table(&scenario, &outcomes),
    })?;
    Ok(())
}

/// Simulates a scenario with every strategy.
pub fn simulate(scenario: &Scenario) -> Vec<Outcome> {
    let outcome = |strategy: &Strategy| engine::simulate(scenario, *strategy);
    Strategy::ALL.iter().map(outcome).collect()
}

/// The chart, as SVG.
pub fn chart(outcomes: &[Outcome]) -> String {
    chart::svg(outcomes)
}

fn write_chart(path: &Path, outcomes: &[Outcome]) -> anyhow::Result<()> {
    let text = chart(outcomes);
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
