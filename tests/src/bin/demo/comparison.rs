//! Asked, planned and seen, side by side.

use std::fmt;

/// One object that a container may have, in the plan and in the container.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) what: String,
    /// Whether it was requested, in words.
    pub(crate) asked: String,
    /// The plan's content.
    pub(crate) planned: String,
    /// The report of the probe in the container.
    pub(crate) seen: String,
    /// Whether plan and container agree with the request.
    pub(crate) right: bool,
}

/// All rows of a container.
#[derive(Debug)]
pub(crate) struct Comparison(pub(crate) Vec<Row>);

impl Row {
    fn cells(&self) -> [&str; 4] {
        [&self.what, &self.asked, &self.planned, &self.seen]
    }
}

impl Comparison {
    /// The differences of plan or container from the request: a line each.
    pub(crate) fn differences(&self) -> Vec<String> {
        let wrong = self.0.iter().filter(|row| !row.right).map(Row::cells);
        wrong
            .map(|[what, asked, planned, seen]| {
                format!("{what}: asked {asked}, planned {planned}, seen {seen}")
            })
            .collect()
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["", "asked", "planned", "seen in the container"];
        let lines = || std::iter::once(head).chain(self.0.iter().map(Row::cells));
        let width = |column: usize| lines().map(|cells| cells[column].len()).max().unwrap_or(0);
        let widths = [width(0), width(1), width(2)];
        for [what, asked, planned, seen] in lines() {
            writeln!(
                formatter,
                "  {what:<0$}  {asked:<1$}  {planned:<2$}  {seen}",
                widths[0], widths[1], widths[2]
            )?;
        }
        Ok(())
    }
}
