//! `boathook-plugin`: see the crate `plugin`.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use device_class::config::Config;
use device_class::name::ClassName;
use plugin::cli::{Cli, Command, LogFormat, LogLevel, Run};
use plugin::{Listing, host_program, panic_hook};
use tracing_subscriber::filter::LevelFilter;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let json = matches!(cli.command, Some(Command::List { json: true, .. }));
    let result = match cli.command {
        None => run(cli.run),
        Some(Command::Run(options)) => run(options),
        Some(Command::List {
            classes,
            config,
            host_root,
            json,
        }) => list(&classes, config.as_deref(), host_root.as_deref(), json),
        Some(Command::InRoot {
            root,
            program,
            arguments,
        }) => {
            let error = host_program::enter(&root, &program, &arguments);
            eprintln!("boathook-plugin: cannot run {}: {error}", program.display());
            Ok(ExitCode::from(host_program::NOT_RUN))
        }
    };
    result.unwrap_or_else(|error| {
        let message = format!("{error:#}");
        eprintln!("boathook-plugin: {message}");
        if json {
            let error = serde_json::json!({ "error": { "message": message } });
            let _ = writeln!(std::io::stdout(), "{error:#}");
        }
        ExitCode::FAILURE
    })
}

fn list(
    classes: &[ClassName],
    config: Option<&Path>,
    host_root: Option<&Path>,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let mut config = Config::load(config).context("configuration")?;
    if let Some(root) = host_root {
        config = config.mounted_at(root);
    }
    let listing = Listing::of(&config, classes)?;
    match json {
        true => writeln!(std::io::stdout(), "{:#}", listing.json())?,
        false => write!(std::io::stdout(), "{}", listing.table())?,
    }
    for problem in &listing.problems {
        eprintln!("boathook-plugin: left out: {problem}");
    }
    Ok(ExitCode::from(u8::from(!listing.problems.is_empty())))
}

fn level(options: &Run) -> LevelFilter {
    match options.log_level {
        _ if options.verbose => LevelFilter::DEBUG,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    }
}

fn run(options: Run) -> anyhow::Result<ExitCode> {
    let log = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_max_level(level(&options))
        .with_ansi(false);
    match options.log_format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
    panic_hook::abort_on_panic();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the asynchronous runtime")?;
    let result = runtime.block_on(plugin::run(options.into()));
    // A device scan may hang in a driver: do not wait for it.
    runtime.shutdown_timeout(Duration::from_millis(50));
    result?;
    Ok(ExitCode::SUCCESS)
}
