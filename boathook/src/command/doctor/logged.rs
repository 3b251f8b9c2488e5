//! Finds messages of the hook and of `boathook-runtime` about a container in the node's log. The
//! log may be the only place with these messages: runtimes discard them if the hook succeeds, and
//! engines discard them if the container cannot be started.

use std::error::Error;
use std::fmt;

use device_class::config::{Config, LogLevel};
use hook::log::{self, LogLine, contains_container_id};

use crate::command::containers::{self, format_label};
use crate::command::finding::{Finding, Severity};
use crate::command::node_log;

const SUBJECT: &str = "log";

/// Returns a finding for each of the latest messages about the container `container_id` in the
/// node's log.
pub(super) fn report_logged_messages(container_id: &str, config: &Config) -> Vec<Finding> {
    match log::read_node_log(&config.host_root) {
        Ok(lines) => select_messages(lines, container_id, config),
        Err(error) => vec![to_warning(&error)],
    }
}

/// Returns the log's messages about the container `id_or_name`, which does not exist. If no message
/// has this id, returns the refusals that may concern the container.
pub(super) fn report_messages_of_unknown_name(id_or_name: &str, config: &Config) -> Vec<Finding> {
    let lines = match log::read_node_log(&config.host_root) {
        Ok(lines) => lines,
        Err(error) => return vec![to_warning(&error)],
    };
    let possible_refusals = report_possible_refusals(&lines, id_or_name, config);
    let messages = select_messages(lines, id_or_name, config);
    if messages.is_empty() {
        possible_refusals
    } else {
        messages
    }
}

/// Returns the latest refusals in the log that may concern the container `id_or_name`. A refused
/// container may leave no other trace on the host, and the log contains its id but not its name. So
/// only refusals of containers that no longer exist are returned. If some of their ids begin with
/// `id_or_name`, only those are returned.
fn report_possible_refusals(lines: &[String], id_or_name: &str, config: &Config) -> Vec<Finding> {
    const MAX_MESSAGES: usize = 3;
    let refusals: Vec<Refusal> = lines
        .iter()
        .filter_map(|line| Refusal::parse(line))
        .collect();
    if refusals.is_empty() {
        return Vec::new();
    }
    let has_id_prefix =
        |refusal: &&Refusal| !id_or_name.is_empty() && refusal.container_id.starts_with(id_or_name);
    let has_matching_ids = refusals.iter().any(|refusal| has_id_prefix(&refusal));
    let candidates = refusals.iter().rev();
    // The log may have thousands of refusals, so the containers of the host are read only once.
    let existing_ids = containers::list_container_ids(&config.host_root);
    let mut refusals: Vec<&Refusal> = candidates
        .filter(|refusal| !has_matching_ids || has_id_prefix(refusal))
        .filter(|refusal| !existing_ids.contains(refusal.container_id))
        .take(MAX_MESSAGES)
        .collect();
    refusals.reverse();
    let findings: Vec<Finding> = refusals
        .into_iter()
        .map(|refusal| Finding::new(Severity::Note, SUBJECT, refusal.to_string()))
        .collect();
    let text = "perhaps one of the last containers that were refused on this host and are gone:";
    let heading = (!findings.is_empty()).then(|| Finding::new(Severity::Note, SUBJECT, text));
    heading.into_iter().chain(findings).collect()
}

/// A line of the log which says why a container was refused.
struct Refusal<'a> {
    timestamp: &'a str,
    container_id: &'a str,
    reason: &'a str,
}

impl<'a> Refusal<'a> {
    /// Parses a line with an error about a container. Returns `None` for another line.
    fn parse(line: &'a str) -> Option<Self> {
        let line = LogLine::parse(line).filter(|line| line.level == LogLevel::Error)?;
        Some(Refusal {
            timestamp: line.time,
            container_id: line.container_id?,
            reason: line.text,
        })
    }
}

impl fmt::Display for Refusal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let age = log::describe_age(self.timestamp);
        let age = age.as_deref().unwrap_or(self.timestamp);
        let label = format_label(self.container_id, None);
        write!(f, "{age}, container {label}: {}", self.reason)
    }
}

/// Returns the reason why the container `container_id` was refused the last time. Returns `None` if
/// this refusal is older than `min_time`, a time stamp in the log's format.
pub(super) fn find_last_refusal(
    container_id: &str,
    min_time: &str,
    config: &Config,
) -> Option<String> {
    let lines = log::read_node_log(&config.host_root).ok()?;
    let mut refusals = lines.iter().rev().filter_map(|line| Refusal::parse(line));
    let refusal = refusals.find(|refusal| refusal.container_id == container_id)?;
    (refusal.timestamp >= min_time).then(|| refusal.reason.to_owned())
}

/// Returns a finding for each of the latest lines in `lines` about the container, at most five.
fn select_messages(mut lines: Vec<String>, container_id: &str, config: &Config) -> Vec<Finding> {
    const MAX_MESSAGES: usize = 5;
    lines.retain(|line| contains_container_id(line, container_id));
    lines.drain(..lines.len().saturating_sub(MAX_MESSAGES));
    node_log::insert_container_names(&mut lines, &config.host_root);
    let lines = lines.into_iter();
    lines
        .map(|line| Finding::new(Severity::Note, SUBJECT, line))
        .collect()
}

fn to_warning(error: &dyn Error) -> Finding {
    Finding::new(Severity::Warning, SUBJECT, log::format_error_chain(error))
}
