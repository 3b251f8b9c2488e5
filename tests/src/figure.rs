//! What the benches measure, and the goals of it.

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
    /// It should be no more than this.
    goal: Option<f64>,
}

impl Figure {
    /// A figure, which has a goal or not.
    pub fn new(name: &str, value: f64, unit: &'static str, goal: Option<f64>) -> Self {
        Self {
            name: name.to_string(),
            value,
            unit,
            goal,
        }
    }

    /// A time in milliseconds.
    pub fn time(name: &str, value: f64, goal: Option<f64>) -> Self {
        Self::new(name, value, "ms", goal)
    }

    /// Whether the goal is met. What is not a number meets none.
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

/// A line per figure, which begins with its name and ends with value, unit and goal; then
/// how many goals are met.
pub fn table(figures: &[Figure]) -> String {
    let widths = figures.iter().map(|figure| figure.name.len());
    let width = widths.max().unwrap_or(0);
    let lines: String = figures.iter().map(|figure| figure.line(width)).collect();
    let goals = figures.iter().filter(|figure| figure.goal.is_some());
    let missed = missed(figures).len();
    let all = goals.count();
    format!("{lines}{} of {all} goals met", all - missed)
}

/// The figures that miss their goals.
pub fn missed(figures: &[Figure]) -> Vec<&str> {
    let missed = figures.iter().filter(|figure| !figure.is_met());
    missed.map(|figure| figure.name.as_str()).collect()
}

/// How long a command takes, which must succeed, in milliseconds.
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

/// The median of what one takes longer than the other in the same turn: a machine that is
/// busier in some turns than in others is so for both.
pub fn median_added(times: &[f64], base: &[f64]) -> f64 {
    median(
        times
            .iter()
            .zip(base)
            .map(|(one, base)| one - base)
            .collect(),
    )
}

/// The middle of the values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}
