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
    let cli = Cli::try_parse().unwrap_or_else(|error| wrong_command_line(&error));
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
            print_json_error(&message, "failure", 1);
        }
        ExitCode::FAILURE
    })
}

/// Ends the process: the command line is wrong, or asks for help.
fn wrong_command_line(error: &clap::Error) -> ! {
    // What was understood before the error is not known.
    if error.use_stderr() && std::env::args_os().any(|argument| argument == "--json") {
        let text = error.to_string();
        // Without the hints that follow.
        let message = text.split("\n\n").next().unwrap_or_default();
        let words = message.trim_start_matches("error: ").split_whitespace();
        let message: Vec<&str> = words.collect();
        print_json_error(&message.join(" "), "usage", error.exit_code());
    }
    error.exit()
}

/// Prints a failure whose message is on stderr, in the form of the other programs.
fn print_json_error(message: &str, kind: &str, code: i32) {
    let error = serde_json::json!({ "message": message, "kind": kind, "exit_code": code });
    let _ = writeln!(
        std::io::stdout(),
        "{:#}",
        serde_json::json!({ "error": error })
    );
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
