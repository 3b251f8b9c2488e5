//! Finds messages of the hook and of `boathook-runtime` about a container in the node's log. The
//! log may be the only place with these messages: runtimes discard them if the hook succeeds, and
//! engines discard them if the container cannot be started.

use device_class::config::Config;
use hook::log::{self, contains_container_id};

use crate::command::finding::{Finding, Severity};

const SUBJECT: &str = "log";

/// Returns a finding for each of the latest messages about the container `container_id` in the
/// node's log.
pub(super) fn report_logged_messages(container_id: &str, config: &Config) -> Vec<Finding> {
    const MAX_MESSAGES: usize = 5;
    select_messages(MAX_MESSAGES, config, |line| {
        contains_container_id(line, container_id)
    })
}

/// Returns a finding for each of the latest log messages that say why a container was refused. A
/// refused container may leave no other trace on the host.
pub(super) fn report_last_refusals(config: &Config) -> Vec<Finding> {
    const MAX_MESSAGES: usize = 3;
    let is_refusal = |line: &str| {
        let message = line.split_once(" boathook: ");
        message.is_some_and(|(_, text)| text.starts_with("container "))
    };
    let mut findings = select_messages(MAX_MESSAGES, config, is_refusal);
    if findings
        .iter()
        .any(|finding| finding.severity == Severity::Note)
    {
        let text = "the last containers that were refused on this host:";
        findings.insert(0, Finding::new(Severity::Note, SUBJECT, text));
    }
    findings
}

fn select_messages(
    max_messages: usize,
    config: &Config,
    is_selected: impl Fn(&str) -> bool,
) -> Vec<Finding> {
    match log::read_node_log(&config.host_root) {
        Ok(mut lines) => {
            lines.retain(|line| is_selected(line));
            lines.drain(..lines.len().saturating_sub(max_messages));
            let lines = lines.into_iter();
            lines
                .map(|line| Finding::new(Severity::Note, SUBJECT, line))
                .collect()
        }
        Err(error) => {
            let text = log::format_error_chain(&error);
            vec![Finding::new(Severity::Warning, SUBJECT, text)]
        }
    }
}
