//! Messages for users and administrators. Each message is one line on stderr. Messages of the
//! hook and the wrapper also go to the node's log ([`node`]) and to syslog, because some
//! runtimes (crun) discard the stderr of their hooks.
//!
//! Every message passes [`printable::line`] once, so that no text of an image reaches a
//! terminal or a log file as an additional line or as an escape sequence.

mod follower;
mod line;
mod node;
mod time;

use std::error::Error;
use std::io::{self, Write};
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use device_class::config::{Config, LogLevel};
use node::NodeLog;

pub(crate) use follower::LogFollower;
pub(crate) use line::{is_about, parse_since};
pub(crate) use node::lines as node_log;
pub(crate) use node::{create_own_directory, list_directories};
pub(crate) use time::now;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogReader {
    /// A user at a terminal. Messages go to stderr alone.
    User,
    /// An engine, which may discard stderr. Messages also go to the node's log and to syslog.
    Engine,
}

fn prefix(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Error => "boathook: ",
        LogLevel::Warning => "boathook: warning: ",
        LogLevel::Info => "boathook: info: ",
    }
}

/// The destinations of messages, and the level from which on they are written.
struct Log {
    reader: LogReader,
    level: LogLevel,
    /// The root directory of the host, below which the node's log is.
    host_root: PathBuf,
    node: OnceLock<NodeLog>,
}

static LOG: OnceLock<Log> = OnceLock::new();

/// Sets the destinations of messages and their level, once for the whole process.
pub(crate) fn start(reader: LogReader, config: Option<&Config>, level: Option<LogLevel>) {
    let level = level.or(config.map(|config| config.log_level));
    let host_root = config.map_or(Path::new("/"), |config| &config.host_root);
    LOG.get_or_init(|| Log {
        reader,
        level: level.unwrap_or_default(),
        host_root: host_root.to_owned(),
        node: OnceLock::new(),
    });
}

/// Opens the node's log and syslog, unless a message has opened them already. A process calls
/// this before it enters the mount namespace of a container, where the same paths are files of
/// the container.
pub(crate) fn open() {
    if let Some(log) = LOG.get()
        && log.reader == LogReader::Engine
    {
        log.node.get_or_init(|| NodeLog::open(&log.host_root));
    }
}

pub(crate) fn error(message: &str) {
    write(LogLevel::Error, message);
}

/// Reports a condition that an administrator should know.
pub(crate) fn warning(message: &str) {
    write(LogLevel::Warning, message);
}

/// Reports an action. The message is built only if the log level includes it.
pub(crate) fn info(message: impl FnOnce() -> String) {
    if LOG.get().is_some_and(|log| log.level == LogLevel::Info) {
        write(LogLevel::Info, &message());
    }
}

/// Reports a change that a service made by itself, so that its journal says what it did. The
/// message is left out only if the log is limited to errors.
pub(crate) fn report_action(message: &str) {
    if LOG.get().is_none_or(|log| log.level >= LogLevel::Warning) {
        write_line(LogLevel::Info, message);
    }
}

fn write(level: LogLevel, message: &str) {
    if LOG.get().is_none_or(|log| level <= log.level) {
        write_line(level, message);
    }
}

fn write_line(level: LogLevel, message: &str) {
    let line = format!("{}{}", prefix(level), printable::line(message));
    // A failure to write to stderr must not keep the message from the node's log and syslog.
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
    open();
    if let Some(node) = LOG.get().and_then(|log| log.node.get()) {
        node.write(level, &line);
    }
}

/// Returns an error with all its causes, separated by `: `. This requires that no message
/// repeats the message of its cause.
pub(crate) fn chain(error: &dyn Error) -> String {
    let causes = iter::successors(Some(error), |&error| error.source());
    let messages: Vec<String> = causes.map(ToString::to_string).collect();
    messages.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Example {
        #[error("container {0}")]
        Outer(&'static str, #[source] Box<Example>),
        #[error("cannot read /x")]
        Read(#[source] io::Error),
        #[error(transparent)]
        Through(Box<Example>),
    }

    #[test]
    fn every_cause_is_there_once() {
        let denied = || io::Error::from_raw_os_error(libc::EACCES);
        let denied_text = "Permission denied (os error 13)";
        for (error, expected) in [
            (Example::Read(denied()), "cannot read /x: "),
            (
                Example::Outer("c1", Box::new(Example::Read(denied()))),
                "container c1: cannot read /x: ",
            ),
            (
                Example::Outer(
                    "c1",
                    Box::new(Example::Through(Box::new(Example::Read(denied())))),
                ),
                "container c1: cannot read /x: ",
            ),
        ] {
            assert_eq!(chain(&error), format!("{expected}{denied_text}"));
        }
    }
}
