//! The log on stderr, in the format of the other programs.

use clap::ValueEnum;

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum LogFormat {
    /// Human-readable
    Text,
    /// JSON lines
    Json,
}

/// Starts to log to stderr.
pub fn start(format: LogFormat) {
    let log = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(false);
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
}
