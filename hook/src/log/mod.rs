//! Writes messages for users and administrators. Each message is one line on stderr. Messages of
//! the hook and of `boathook-runtime` also go to the node's log ([`node`]) and to syslog, because
//! crun discards the stderr of hooks.
//!
//! Every message passes [`host_files::printable::escape_line`] once. This function escapes control
//! characters. So a text from a hostile image cannot add a line to a log file or send an escape
//! sequence to a terminal.

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
use device_class::name::shorten_container_id;
use host_files::printable;
use node::NodeLog;

pub use line::{LogLine, contains_container_id, parse_since};
pub use node::read_lines as read_node_log;
pub use node::{create_own_directory, list_log_directories, read_lines_with_follower};
pub use time::{describe_age, format_current_time, format_time};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogRecipient {
    /// A user started this program and reads its messages on stderr.
    User,
    /// A container engine started this program and may discard its stderr. Messages are also
    /// written to the node's log and to syslog.
    Engine,
}

/// The log of this process: the places to which messages are written, and the least severe level
/// that is written.
struct Log {
    recipient: LogRecipient,
    level: LogLevel,
    /// The directory in which this process sees the host's root directory, such as `/` or `/host`.
    /// The node's log is below it.
    host_root: PathBuf,
    node_log: OnceLock<NodeLog>,
}

static LOG: OnceLock<Log> = OnceLock::new();

/// Sets the destinations of messages and the least severe level that is written. Only the first
/// call in a process has an effect.
pub fn init(recipient: LogRecipient, config: Option<&Config>, level: Option<LogLevel>) {
    let level = level.or(config.map(|config| config.log_level));
    let host_root = config.map_or(Path::new("/"), |config| &config.host_root);
    LOG.get_or_init(|| Log {
        recipient,
        level: level.unwrap_or_default(),
        host_root: host_root.to_owned(),
        node_log: OnceLock::new(),
    });
}

/// Opens the node's log and syslog, if they are not open yet. A process must call this function
/// before it enters a container's mount namespace, because there the same paths lead to the
/// container's files.
pub(crate) fn open_node_log() {
    if let Some(log) = LOG.get()
        && log.recipient == LogRecipient::Engine
    {
        log.node_log.get_or_init(|| NodeLog::open(&log.host_root));
    }
}

pub fn error(message: &str) {
    write(LogLevel::Error, message);
}

/// Logs a warning: a problem that does not prevent the container's start, but that an administrator
/// should know.
pub fn warning(message: &str) {
    write(LogLevel::Warning, message);
}

/// Logs an informational message. Calls `message` only if the log level includes such messages.
pub fn info(message: impl FnOnce() -> String) {
    if LOG.get().is_some_and(|log| log.level == LogLevel::Info) {
        write(LogLevel::Info, &message());
    }
}

/// The root directory of the host to whose log this process also writes its actions. It is set in
/// services and commands, and not in the hook.
static ACTION_LOG_ROOT: OnceLock<PathBuf> = OnceLock::new();

/// After this call, [`log_service_action`] and [`log_container_change`] also write to the node's
/// log below `host_root`, the root directory of the host. Both functions must then be called in the
/// host's mount namespace.
pub fn enable_action_log(host_root: &Path) {
    ACTION_LOG_ROOT.get_or_init(|| host_root.to_owned());
}

/// A function that converts a container's id to a text for users, such as `web (0123456789ab)`.
type ContainerLabel = Box<dyn Fn(&str) -> String + Send + Sync>;

static ACTION_LABEL: OnceLock<ContainerLabel> = OnceLock::new();

/// After this call, [`log_service_action`] replaces the random id of a container on stderr by the
/// text that `label` returns for this id.
pub fn label_containers_in_actions(label: impl Fn(&str) -> String + Send + Sync + 'static) {
    ACTION_LABEL.get_or_init(|| Box::new(label));
}

/// Logs a change that a service made on its own, and not because of a user's command. The message
/// goes to stderr, and after [`enable_action_log`] also to the node's log. At the log level
/// `Error`, nothing is logged.
pub fn log_service_action(message: &str) {
    if LOG.get().is_none_or(|log| log.level >= LogLevel::Warning) {
        match ACTION_LABEL.get() {
            Some(label) => write_to_all(LogLevel::Info, message, label),
            None => write_unfiltered(LogLevel::Info, message),
        }
        append_to_action_log(message);
    }
}

/// Logs that a container was changed by a user's command. The message goes to the node's log, and
/// `boathook log` shows it. Only at the log level `Info`, it also goes to stderr, because the
/// command prints its result itself. At the log level `Error`, nothing is logged.
pub fn log_container_change(message: &str) {
    let level = LOG.get().map_or(LogLevel::default(), |log| log.level);
    match level {
        LogLevel::Error => {}
        LogLevel::Warning => {
            write_to_node_log(LogLevel::Info, &format_line(LogLevel::Info, message));
            append_to_action_log(message);
        }
        LogLevel::Info => log_service_action(message),
    }
}

fn append_to_action_log(message: &str) {
    if let Some(host_root) = ACTION_LOG_ROOT.get() {
        node::append_line_with_time(host_root, &format_line(LogLevel::Info, message));
    }
}

fn write(level: LogLevel, message: &str) {
    if LOG.get().is_none_or(|log| level <= log.level) {
        write_unfiltered(level, message);
    }
}

fn write_unfiltered(level: LogLevel, message: &str) {
    write_to_all(level, message, &shorten_container_id);
}

/// Writes a message to stderr, the node's log and syslog. If a user reads stderr, `label` replaces
/// the random ids of containers there. If an engine stores stderr, the ids stay complete, because
/// `boathook doctor` finds messages by the complete id.
fn write_to_all(level: LogLevel, message: &str, label: &dyn Fn(&str) -> String) {
    let line = format_line(level, message);
    let is_read_by_engine = LOG
        .get()
        .is_some_and(|log| log.recipient == LogRecipient::Engine);
    let text = if is_read_by_engine {
        line.clone()
    } else {
        line::replace_random_ids(&line, label)
    };
    // An error of stderr is ignored, because the message must still reach the node's log and
    // syslog.
    let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
    write_to_node_log(level, &line);
}

fn format_line(level: LogLevel, message: &str) -> String {
    format!(
        "{}{}",
        line::level_prefix(level),
        printable::escape_line(message)
    )
}

fn write_to_node_log(level: LogLevel, line: &str) {
    open_node_log();
    if let Some(node_log) = LOG.get().and_then(|log| log.node_log.get()) {
        node_log.write(level, line);
    }
}

/// Returns the message of `error` and the messages of all its causes, as in
/// `cannot open /x: not found`. So no error type may include the message of its cause in its own
/// message.
pub fn format_error_chain(error: &dyn Error) -> String {
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
            assert_eq!(
                format_error_chain(&error),
                format!("{expected}{denied_text}")
            );
        }
    }
}
