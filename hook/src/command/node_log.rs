//! `boathook log`: the messages of hooks and of boathook-runtime on this node.

use std::io::{self, Write};
use std::thread::sleep;
use std::time::Duration;

use device_class::config::Config;
use serde_json::json;

use super::{CommandError, containers, print_json};
use crate::cli::LogArguments;
use crate::exit::ExitCode;
use crate::log::{self, LogFollower, is_about};

/// The time between two looks at the log files.
const PAUSE: Duration = Duration::from_millis(250);

/// The conditions that a line of the log must meet to be printed.
struct Filter<'a> {
    /// The container as it was named, and its id. A container that is gone has no other name than
    /// its id.
    container: Option<(&'a str, Option<String>)>,
    since: Option<&'a str>,
}

impl<'a> Filter<'a> {
    fn new(arguments: &'a LogArguments, config: &Config) -> Self {
        let name = arguments.container.as_deref();
        Filter {
            container: name.map(|name| (name, containers::find_id(name, &config.host_root))),
            since: arguments.since.as_deref(),
        }
    }

    fn matches_line(&self, line: &str) -> bool {
        let is_about_container = self.container.as_ref().is_none_or(|(name, id)| {
            id.as_ref().is_some_and(|id| is_about(line, id)) || is_about(line, name)
        });
        is_about_container && self.since.is_none_or(|since| line >= since)
    }
}

/// Prints the lines of the log. With `--follow` it then prints new lines until the process is stopped.
pub(super) fn run(
    arguments: &LogArguments,
    json: bool,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let filter = Filter::new(arguments, config);
    // The follower begins before the lines are read, so that no line is lost between.
    let mut follower = LogFollower::start(&config.host_root);
    let mut lines = log::node_log(&config.host_root).map_err(CommandError::Log)?;
    lines.retain(|line| filter.matches_line(line));
    if !arguments.follow {
        if json {
            print_json(&json!({ "lines": lines }))?;
        } else {
            print(&lines, json)?;
        }
        return Ok(ExitCode::Success);
    }
    loop {
        print(&lines, json)?;
        sleep(PAUSE);
        lines = follower.read_lines().map_err(CommandError::Log)?;
        lines.retain(|line| filter.matches_line(line));
    }
}

/// Prints each line as text, or as a JSON object.
fn print(lines: &[String], json: bool) -> Result<(), CommandError> {
    let mut out = io::stdout().lock();
    for line in lines {
        match json {
            true => writeln!(out, "{}", json!({ "line": line }))?,
            false => writeln!(out, "{line}")?,
        }
    }
    Ok(())
}
