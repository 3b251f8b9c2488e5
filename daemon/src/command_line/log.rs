//! The log of the programs that run as services. They write it to stderr.

use std::io;

use clap::{Args, ValueEnum};
use host_files::printable::{EscapingWriter, OutputFormat};
use tracing_subscriber::filter::LevelFilter;

/// The options for the level and the format of the log.
#[derive(Debug, Args)]
pub struct LogOptions {
    /// Which messages are logged
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: LogLevel,

    /// Log more: --log-level debug
    #[arg(short, long, conflicts_with = "log_level")]
    verbose: bool,

    /// Format of the log on stderr
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
}

/// The format of the log.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogFormat {
    /// Human-readable
    Text,
    /// JSON lines
    Json,
}

/// The least severe level of messages that are logged.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogLevel {
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
    /// Starts the log of this process with these options. Panics if the log was already started.
    pub fn start(&self) {
        // The log library writes each event with one call, as `OutputFormat::Line` requires, which
        // treats each write as one line.
        let form = match self.log_format {
            LogFormat::Text => OutputFormat::Line,
            LogFormat::Json => OutputFormat::Json,
        };
        let log = tracing_subscriber::fmt()
            .with_writer(move || EscapingWriter::new(io::stderr(), form))
            .with_target(false)
            .with_max_level(self.max_level())
            .with_ansi(false);
        match self.log_format {
            LogFormat::Text => log.init(),
            LogFormat::Json => log.json().flatten_event(true).init(),
        }
    }

    fn max_level(&self) -> LevelFilter {
        match self.log_level {
            _ if self.verbose => LevelFilter::DEBUG,
            LogLevel::Error => LevelFilter::ERROR,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Info => LevelFilter::INFO,
            LogLevel::Debug => LevelFilter::DEBUG,
        }
    }
}
