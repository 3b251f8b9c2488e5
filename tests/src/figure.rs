//! The figures that the benches measure, and their goals.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde::Serialize;

/// A measured figure and its goal.
#[derive(Debug, Serialize)]
pub struct Figure {
    name: String,
    value: f64,
    unit: &'static str,
    /// The highest value that meets the goal.
    goal: Option<f64>,
}

impl Figure {
    /// Creates a figure. `goal` is `None` for a figure without a goal.
    pub fn new(name: &str, value: f64, unit: &'static str, goal: Option<f64>) -> Self {
        Self {
            name: name.to_string(),
            value,
            unit,
            goal,
        }
    }

    /// Creates the figure of a time in milliseconds.
    pub fn time(name: &str, value: f64, goal: Option<f64>) -> Self {
        Self::new(name, value, "ms", goal)
    }

    /// Returns whether the goal is met. A value that is not a number meets no goal.
    fn is_met(&self) -> bool {
        self.goal.is_none_or(|most| self.value <= most)
    }

    fn line(&self, width: usize) -> String {
        let goal = match self.goal {
            None => "no goal".to_string(),
            Some(most) if self.is_met() => format!("goal {most} or less: met"),
            Some(most) => format!("goal {most} or less: NOT MET"),
        };
        let (name, value, unit) = (&self.name, self.value, self.unit);
        format!("{name:<width$}  {value:>8.3} {unit}  {goal}\n")
    }
}

/// Formats one line for each figure, with name, value, unit and goal, and a last line with the
/// number of goals that are met.
pub fn table(figures: &[Figure]) -> String {
    let widths = figures.iter().map(|figure| figure.name.len());
    let width = widths.max().unwrap_or(0);
    let lines: String = figures.iter().map(|figure| figure.line(width)).collect();
    let goals = figures.iter().filter(|figure| figure.goal.is_some());
    let missed = missed(figures).len();
    let all = goals.count();
    format!("{lines}{} of {all} goals met", all - missed)
}

/// Returns the names of the figures that miss their goals.
pub fn missed(figures: &[Figure]) -> Vec<&str> {
    let missed = figures.iter().filter(|figure| !figure.is_met());
    missed.map(|figure| figure.name.as_str()).collect()
}

/// Runs a command, which must succeed, and returns its time in milliseconds.
pub fn time(command: &mut Command) -> Result<f64> {
    let start = Instant::now();
    let status = command
        .status()
        .with_context(|| format!("cannot run {}", command.get_program().display()))?;
    let time = start.elapsed().as_secs_f64() * 1e3;
    if !status.success() {
        bail!("{} failed ({status})", command.get_program().display());
    }
    Ok(time)
}

/// Returns the median of the differences between two times of the same round. A machine that is
/// busier in some rounds delays both.
pub fn median_added(times: &[f64], base: &[f64]) -> f64 {
    median(
        times
            .iter()
            .zip(base)
            .map(|(one, base)| one - base)
            .collect(),
    )
}

/// Returns the median of the values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}
