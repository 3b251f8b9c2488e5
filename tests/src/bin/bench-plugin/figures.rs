//! The printed figures, and which of them miss their goal.

use anyhow::{Result, bail};

/// Prints a line per figure, which begins with its name and ends with value,
/// unit and goal.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    missed: Vec<String>,
}

impl Figures {
    /// Prints a figure without a goal.
    pub(crate) fn print(&self, name: &str, value: f64, unit: &str) {
        println!("{name:<32} {value:>9.3} {unit}  no goal: the floor");
    }

    /// Prints a figure that must be at most `goal`.
    pub(crate) fn compare(&mut self, name: &str, value: f64, unit: &str, goal: f64) {
        // What is not a number meets no goal either.
        let met = value <= goal;
        let word = if met { "met" } else { "missed" };
        println!("{name:<32} {value:>9.3} {unit}  goal {goal} {unit}: {word}");
        if !met {
            self.missed.push(name.to_owned());
        }
    }

    /// The end of all figures.
    pub(crate) fn end(self) -> Result<()> {
        if self.missed.is_empty() {
            return Ok(());
        }
        bail!("goals missed: {}", self.missed.join(", "))
    }
}
