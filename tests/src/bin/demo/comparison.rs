//! A table that compares what a container requests, what is planned for it, and what it has.

use std::fmt;

/// One row of the table: a device node or library that a container may have.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) object: String,
    /// The request for the object, or `-`.
    pub(crate) requested: String,
    /// The object in the plan, or `-`.
    pub(crate) planned: String,
    /// The object as the probe observes it in the container.
    pub(crate) observed: String,
    /// Whether both the plan and the container are as requested.
    pub(crate) is_correct: bool,
}

/// The table of one container.
#[derive(Debug)]
pub(crate) struct Comparison(pub(crate) Vec<Row>);

impl Row {
    fn cells(&self) -> [&str; 4] {
        [&self.object, &self.requested, &self.planned, &self.observed]
    }
}

impl Comparison {
    /// Returns a line for each row whose plan or container is not as requested.
    pub(crate) fn differences(&self) -> Vec<String> {
        let wrong = self.0.iter().filter(|row| !row.is_correct).map(Row::cells);
        wrong
            .map(|[object, requested, planned, observed]| {
                format!("{object}: requested {requested}, planned {planned}, observed {observed}")
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
        for [object, requested, planned, observed] in lines() {
            writeln!(
                formatter,
                "  {object:<0$}  {requested:<1$}  {planned:<2$}  {observed}",
                widths[0], widths[1], widths[2]
            )?;
        }
        Ok(())
    }
}
