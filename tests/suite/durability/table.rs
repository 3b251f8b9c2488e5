//! The survival table: as it is measured, and as docs/durability.md has it.

use std::fmt;
use std::fs;

use harness::binaries;
use harness::cgroup_view::CgroupView;
use harness::systemd_host::Runtime;

use super::event::Event;
use super::given_by::GivenBy;

/// What became of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Kept,
    Lost,
    /// The event cannot happen to such a container.
    NoUnit,
}

/// A kind of container, and what it went through.
pub(super) struct Row {
    pub(super) view: CgroupView,
    pub(super) runtime: Runtime,
    pub(super) given_by: GivenBy,
    /// In the order of [`Event::ALL`].
    pub(super) fates: Vec<Fate>,
}

/// The lines above the rows.
pub(super) fn head() -> [String; 2] {
    let names = ["cgroup", "runtime", "device given by"].map(str::to_string);
    let events = Event::ALL.iter().map(Event::to_string);
    let columns: Vec<_> = names.into_iter().chain(events).collect();
    [
        line(&columns),
        line(&vec!["---".to_string(); columns.len()]),
    ]
}

impl fmt::Display for Row {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let view = self.view.to_string();
        let kind = [
            view.trim_start_matches("cgroup ").to_string(),
            self.runtime.to_string(),
            self.given_by.to_string(),
        ];
        let fates = self.fates.iter().map(Fate::to_string);
        formatter.write_str(&line(&kind.into_iter().chain(fates).collect::<Vec<_>>()))
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Kept => "kept",
            Self::Lost => "**lost**",
            Self::NoUnit => "no unit",
        })
    }
}

fn line(cells: &[String]) -> String {
    format!("| {} |", cells.join(" | "))
}

/// The table's lines in docs/durability.md: it is the one that begins with the
/// same columns.
pub(super) fn documented() -> Vec<String> {
    let file = binaries::source_tree().join("docs/durability.md");
    let text = fs::read_to_string(&file).unwrap();
    let lines = text
        .lines()
        .skip_while(|line| !line.starts_with("| cgroup |"));
    lines
        .take_while(|line| line.starts_with('|'))
        .map(str::to_string)
        .collect()
}
