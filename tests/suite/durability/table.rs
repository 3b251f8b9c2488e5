//! The tables: as they are measured, and as tables.md has them.

use std::fmt;
use std::fs;

use harness::binaries;

use super::event::Event;

/// The result for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Kept,
    Lost,
    /// The event cannot happen to such a container.
    NoUnit,
}

/// A table's columns: the kinds of a container, and the events.
pub(super) struct Table {
    pub(super) kinds: [&'static str; 3],
    pub(super) events: &'static [Event],
}

/// A kind of container, and its results.
pub(super) struct Row {
    pub(super) kind: [String; 3],
    /// In the order of [`Table::events`].
    pub(super) fates: Vec<Fate>,
}

impl Table {
    /// Prints the rows, and fails if the document has others. Where some could
    /// not be measured, it may have more.
    pub(super) fn compare(&self, rows: &[Row], all_measured: bool) {
        let head = self.head();
        let rows = rows.iter().map(Row::to_string);
        let measured: Vec<_> = head.iter().cloned().chain(rows).collect();
        println!("{}", measured.join("\n"));

        let documented = documented(&head[0]);
        let wrong = measured.iter().filter(|line| !documented.contains(line));
        let wrong: Vec<_> = wrong.collect();
        assert!(wrong.is_empty(), "tables.md lacks: {wrong:#?}");
        if all_measured {
            let more = documented.iter().filter(|line| !measured.contains(line));
            let more: Vec<_> = more.collect();
            assert!(more.is_empty(), "tables.md has more: {more:#?}");
        }
    }

    /// The lines above the rows.
    fn head(&self) -> [String; 2] {
        let kinds = self.kinds.map(str::to_string).into_iter();
        let columns: Vec<_> = kinds
            .chain(self.events.iter().map(Event::to_string))
            .collect();
        [
            line(&columns),
            line(&vec!["---".to_string(); columns.len()]),
        ]
    }
}

impl fmt::Display for Row {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fates = self.fates.iter().map(Fate::to_string);
        let cells: Vec<_> = self.kind.iter().cloned().chain(fates).collect();
        formatter.write_str(&line(&cells))
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

/// The lines in tables.md of the table with this first line. One there stands for
/// several kinds of containers with the same results: a cell has several values, between
/// semicolons.
fn documented(head: &str) -> Vec<String> {
    let file = binaries::source_tree().join("tests/suite/durability/tables.md");
    let text = fs::read_to_string(&file).unwrap();
    text.lines()
        .skip_while(|line| *line != head)
        .take_while(|line| line.starts_with('|'))
        .flat_map(single)
        .collect()
}

/// The lines for which one stands, with one value in each cell.
fn single(line: &str) -> Vec<String> {
    let mut lines = vec![String::from("|")];
    for cell in line.trim_matches(['|', ' ']).split(" | ") {
        lines = lines
            .iter()
            .flat_map(|begun| {
                cell.split("; ")
                    .map(move |value| format!("{begun} {value} |"))
            })
            .collect();
    }
    lines
}

#[test]
fn a_line_can_stand_for_several() {
    assert_eq!(
        single("| v1; v2 | runc, systemd | hook; attach | kept |"),
        [
            "| v1 | runc, systemd | hook | kept |",
            "| v1 | runc, systemd | attach | kept |",
            "| v2 | runc, systemd | hook | kept |",
            "| v2 | runc, systemd | attach | kept |",
        ]
    );
}
