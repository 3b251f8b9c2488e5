//! `probe QUESTIONS` runs in a container and prints what it observes there as JSON (see
//! `harness::probe`). `probe --pause` sleeps until it is killed.

use std::process::ExitCode;

use anyhow::{Context, Result};
use harness::exit;
use harness::probe::{self, Questions};

fn main() -> ExitCode {
    exit::with("probe", run())
}

fn run() -> Result<()> {
    let argument = std::env::args()
        .nth(1)
        .context("usage: probe QUESTIONS | probe --pause")?;
    if argument == probe::PAUSE {
        loop {
            std::thread::park();
        }
    }
    let questions: Questions =
        serde_json::from_str(&argument).context("these are not questions")?;
    println!("{}", serde_json::to_string(&probe::answer(&questions)?)?);
    Ok(())
}
