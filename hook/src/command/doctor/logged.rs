//! The messages of the hook and of boathook-runtime in the node's log. The log is needed because a
//! runtime drops the messages of a hook that succeeds, and an engine drops the messages of a
//! container that failed.

use device_class::config::Config;

use crate::command::finding::{Finding, Verdict};
use crate::log::{self, is_about};

const SUBJECT: &str = "log";

/// Returns the last messages about a container.
pub(super) fn find_messages(id: &str, config: &Config) -> Vec<Finding> {
    const SHOWN: usize = 5;
    select(SHOWN, config, |line| is_about(line, id))
}

/// Returns the last messages that say why a container was refused, for a container that left
/// nothing else on the host.
pub(super) fn find_last_refusals(config: &Config) -> Vec<Finding> {
    const SHOWN: usize = 3;
    let is_refusal = |line: &str| {
        let message = line.split_once(" boathook: ");
        message.is_some_and(|(_, text)| text.starts_with("container "))
    };
    let mut findings = select(SHOWN, config, is_refusal);
    if findings
        .iter()
        .any(|finding| finding.verdict == Verdict::Note)
    {
        let text = "the last containers that were refused on this host:";
        findings.insert(0, Finding::new(Verdict::Note, SUBJECT, text));
    }
    findings
}

fn select(count: usize, config: &Config, is_wanted: impl Fn(&str) -> bool) -> Vec<Finding> {
    match log::node_log(&config.host_root) {
        Ok(mut lines) => {
            lines.retain(|line| is_wanted(line));
            lines.drain(..lines.len().saturating_sub(count));
            let lines = lines.into_iter();
            lines
                .map(|line| Finding::new(Verdict::Note, SUBJECT, line))
                .collect()
        }
        Err(error) => {
            let text = log::chain(&error);
            vec![Finding::new(Verdict::Warning, SUBJECT, text)]
        }
    }
}
