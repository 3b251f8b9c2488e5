//! Implements `boathook log`, which prints the messages that hooks and `boathook-runtime` logged on
//! this node.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use device_class::config::Config;
use hook::exit::ExitCode;
use hook::log::{self, LogLine, contains_container_id};
use serde_json::json;

use super::{CommandError, containers, print_json};
use crate::cli::LogArguments;

/// The time between two reads of the log files with `--follow`.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

struct LineFilter<'a> {
    /// The container name or id that the user gave, and the container's id. The second value is
    /// `None` if no such container exists any longer.
    container: Option<(&'a str, Option<String>)>,
    min_time: Option<&'a str>,
}

impl<'a> LineFilter<'a> {
    fn new(arguments: &'a LogArguments, config: &Config) -> Self {
        let name = arguments.container.as_deref();
        LineFilter {
            container: name
                .map(|name| (name, containers::find_container_id(name, &config.host_root))),
            min_time: arguments.min_time.as_deref(),
        }
    }

    fn matches_line(&self, line: &str) -> bool {
        let is_about_container = self.container.as_ref().is_none_or(|(name, id)| {
            id.as_ref()
                .is_some_and(|id| contains_container_id(line, id))
                || contains_container_id(line, name)
        });
        is_about_container && self.min_time.is_none_or(|min_time| line >= min_time)
    }
}

/// A cache of the names that the engines of this host gave to containers.
struct ContainerNames<'a> {
    host_root: &'a Path,
    names_by_id: BTreeMap<String, String>,
}

impl<'a> ContainerNames<'a> {
    fn new(host_root: &'a Path) -> Self {
        ContainerNames {
            host_root,
            names_by_id: BTreeMap::new(),
        }
    }

    /// Adds the container's name to each line that contains a container id. If a line contains an
    /// unknown id, reads the names again, because the container may be new.
    fn insert_names(&mut self, lines: &mut [String]) {
        let mut ids = lines.iter().filter_map(|line| find_container_id(line));
        if ids.any(|id| !self.names_by_id.contains_key(id)) {
            self.names_by_id = containers::read_container_names_by_id(self.host_root);
        }
        for line in lines {
            let named_line = find_container_id(line).and_then(|id| {
                let name = self.names_by_id.get(id).filter(|name| *name != id)?;
                let label = containers::format_label(id, Some(name));
                let (prefix, suffix) = line.split_once(id)?;
                Some(format!("{prefix}{label}{suffix}"))
            });
            if let Some(named_line) = named_line {
                *line = named_line;
            }
        }
    }
}

/// Adds the container's name to each of the log lines `lines` that contains a container id.
pub(super) fn insert_container_names(lines: &mut [String], host_root: &Path) {
    ContainerNames::new(host_root).insert_names(lines);
}

fn find_container_id(line: &str) -> Option<&str> {
    LogLine::parse(line)?.container_id
}

/// Prints the log lines that meet the user's conditions. With `--follow`, continues to print new
/// lines until this process is stopped.
pub(super) fn run(
    arguments: &LogArguments,
    as_json: bool,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let filter = LineFilter::new(arguments, config);
    let mut container_names = ContainerNames::new(&config.host_root);
    let (mut lines, mut follower) =
        log::read_lines_with_follower(&config.host_root).map_err(CommandError::Log)?;
    lines.retain(|line| filter.matches_line(line));
    if !as_json {
        container_names.insert_names(&mut lines);
    }
    if !arguments.should_follow {
        if as_json {
            print_json(&json!({ "lines": lines }))?;
        } else {
            print_lines(&lines, as_json)?;
        }
        return Ok(ExitCode::Success);
    }
    loop {
        print_lines(&lines, as_json)?;
        sleep(POLL_INTERVAL);
        lines = follower.read_lines().map_err(CommandError::Log)?;
        lines.retain(|line| filter.matches_line(line));
        if !as_json {
            container_names.insert_names(&mut lines);
        }
    }
}

/// Prints each log line as text, or as a JSON object on a line of its own.
fn print_lines(lines: &[String], as_json: bool) -> Result<(), CommandError> {
    let mut out = io::stdout().lock();
    for line in lines {
        if as_json {
            writeln!(out, "{}", json!({ "line": line }))?
        } else {
            writeln!(out, "{line}")?
        }
    }
    Ok(())
}
