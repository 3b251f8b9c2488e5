//! `boathook-plugin`: see the crate `plugin`.

mod cli;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use cli::{Cli, Command, LogFormat};
use device_class::config::Config;
use plugin::list::Listing;
use plugin::{host_program, last_words};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match &cli.command {
        Some(Command::List { json }) => list(&cli, *json),
        Some(Command::InRoot {
            root,
            program,
            arguments,
        }) => {
            let error = host_program::enter(root, program, arguments);
            Err(error).with_context(|| format!("{} can't be run", program.display()))
        }
        None => serve(cli).map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|error| {
        eprintln!("boathook-plugin: {error:#}");
        ExitCode::FAILURE
    })
}

fn list(cli: &Cli, json: bool) -> anyhow::Result<ExitCode> {
    let config = Config::load(cli.config.as_deref()).context("configuration")?;
    let listing = Listing::of(&config)
        .with_context(|| format!("the host's root {}", config.host_root.display()))?;
    match json {
        true => writeln!(std::io::stdout(), "{:#}", listing.json())?,
        false => write!(std::io::stdout(), "{}", listing.table())?,
    }
    for problem in &listing.problems {
        eprintln!("boathook-plugin: left out: {problem}");
    }
    Ok(ExitCode::from(u8::from(!listing.problems.is_empty())))
}

fn serve(cli: Cli) -> anyhow::Result<()> {
    let log = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(false);
    match cli.log_format() {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
    last_words::end_on_panic();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the asynchronous runtime can't start")?;
    let ended = runtime.block_on(plugin::run::run(cli.options()));
    // A look at the host may hang in a driver: it is not waited for.
    runtime.shutdown_timeout(Duration::from_millis(50));
    Ok(ended?)
}
