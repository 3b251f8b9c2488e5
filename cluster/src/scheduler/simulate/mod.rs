//! `boathook-scheduler simulate`: a cluster over time.

use clap::Args;
use std::path::PathBuf;

/// Options of `simulate`.
#[derive(Debug, Args)]
pub struct Options {
    /// The scenario
    file: PathBuf,
}

/// Runs it.
pub fn run(_options: &Options) -> anyhow::Result<()> {
    Ok(())
}
