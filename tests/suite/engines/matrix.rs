//! The table of engines and cases.

use std::fmt::Write;
use std::io::Write as _;
use std::sync::Mutex;

use harness::engine_root::Generation;

use super::case::Case;
use super::check::{CASES, Check};
use super::engine::Engine;

/// The result of one case.
enum Cell {
    Passed,
    /// The engine lacks what the case needs, or is not installed.
    NotTried(String),
    Failed(String),
}

/// One engine with all cases.
pub(super) struct Column {
    engine: &'static str,
    cells: Vec<Cell>,
}

impl Column {
    /// Tries every case.
    pub(super) fn try_cases(name: &'static str, engine: &dyn Engine) -> Self {
        let try_one = |(case, _, check): (Case, &str, Check)| match engine.lacks(case) {
            Some(reason) => Cell::NotTried(reason.to_string()),
            None => match check(engine) {
                Ok(()) => Cell::Passed,
                Err(error) => Cell::Failed(format!("{error:#}")),
            },
        };
        Column {
            engine: name,
            cells: CASES.into_iter().map(try_one).collect(),
        }
    }

    /// An engine that is not installed.
    pub(super) fn missing(engine: &'static str, reason: &str) -> Self {
        let not_tried = |_| Cell::NotTried(reason.to_string());
        Column {
            engine,
            cells: CASES.iter().map(not_tried).collect(),
        }
    }

    /// A line for each case that failed.
    pub(super) fn failures(&self) -> String {
        let cells = CASES.iter().zip(&self.cells);
        cells
            .filter_map(|((_, case, _), cell)| match cell {
                Cell::Failed(error) => Some(format!("{case}: {error}\n")),
                _ => None,
            })
            .collect()
    }
}

static COLUMNS: Mutex<Vec<(Generation, Column)>> = Mutex::new(Vec::new());

/// Adds an engine, and prints its generation's table if it is the last of `all`.
pub(super) fn add(generation: Generation, column: Column, all: usize) {
    let mut columns = COLUMNS.lock().unwrap();
    columns.push((generation, column));
    let of_generation = columns.iter().filter(|(other, _)| *other == generation);
    let mut done: Vec<&Column> = of_generation.map(|(_, column)| column).collect();
    if done.len() == all {
        done.sort_by_key(|column| column.engine);
        // Past the capture of the test runner, which shows nothing of a test
        // that passes.
        let title = format!("\nengines, {generation:?}:\n");
        let _ = std::io::stderr().write_all((title + &table(&done)).as_bytes());
    }
}

/// In Markdown, as docs/measurements.md has it, with the reasons below.
fn table(columns: &[&Column]) -> String {
    let mut text = String::from("\n| case |");
    let mut reasons: Vec<&str> = Vec::new();
    for column in columns {
        let _ = write!(text, " {} |", column.engine);
    }
    text.push_str("\n|---|");
    text.push_str(&":-:|".repeat(columns.len()));
    for (row, (_, case, _)) in CASES.iter().enumerate() {
        let _ = write!(text, "\n| {case} |");
        for column in columns {
            let cell = match &column.cells[row] {
                Cell::Passed => "yes".to_string(),
                Cell::Failed(_) => "**no**".to_string(),
                Cell::NotTried(reason) => {
                    let known = reasons.iter().position(|known| known == reason);
                    let number = known.unwrap_or_else(|| {
                        reasons.push(reason);
                        reasons.len() - 1
                    });
                    format!("– ({})", number + 1)
                }
            };
            let _ = write!(text, " {cell} |");
        }
    }
    text.push_str("\n\n");
    for (number, reason) in reasons.iter().enumerate() {
        let _ = writeln!(text, "{}. {reason}", number + 1);
    }
    text
}
