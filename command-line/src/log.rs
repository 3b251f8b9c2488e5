//! The log of the programs that run as services, which they write to stderr.

use std::io;

use clap::{Args, ValueEnum};
use printable::{Form, Printable};
use tracing_subscriber::filter::LevelFilter;

/// The options for the level and the format of the log.
#[derive(Debug, Args)]
pub struct LogOptions {
    /// Which messages are logged
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: Level,

    /// Log more: --log-level debug
    #[arg(short, long, conflicts_with = "log_level")]
    verbose: bool,

    /// Format of the log on stderr
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: Format,
}

/// The format of the log.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// Human-readable
    Text,
    /// JSON lines
    Json,
}

/// The least severe level of messages that are logged.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Level {
    /// Errors, such as a resource that cannot be served
    Error,
    /// Also warnings
    Warn,
    /// Also changes of resources and connections
    Info,
    /// Also each request
    Debug,
}

impl LogOptions {
    /// Starts the log of this process with these options. The function panics if it is called
    /// twice.
    pub fn start(&self) {
        // Each event is one write, as `Form::Line` requires.
        let form = match self.log_format {
            Format::Text => Form::Line,
            Format::Json => Form::Json,
        };
        let log = tracing_subscriber::fmt()
            .with_writer(move || Printable::new(io::stderr(), form))
            .with_target(false)
            .with_max_level(self.max_level())
            .with_ansi(false);
        match self.log_format {
            Format::Text => log.init(),
            Format::Json => log.json().flatten_event(true).init(),
        }
    }

    fn max_level(&self) -> LevelFilter {
        match self.log_level {
            _ if self.verbose => LevelFilter::DEBUG,
            Level::Error => LevelFilter::ERROR,
            Level::Warn => LevelFilter::WARN,
            Level::Info => LevelFilter::INFO,
            Level::Debug => LevelFilter::DEBUG,
        }
    }
}
