//! A measured figure and its goal.

use std::fmt;

use serde::Serialize;

#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    name: String,
    value: f64,
    unit: Unit,
    goal: Option<Goal>,
}

/// What a figure counts.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) enum Unit {
    /// Thousandths of a second.
    #[serde(rename = "ms")]
    Milliseconds,
    /// Millions of bytes.
    #[serde(rename = "MB")]
    Megabytes,
    /// One figure divided by another.
    #[serde(rename = "x")]
    Ratio,
}

/// What a figure should be.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Goal {
    /// No more than this, in the figure's unit.
    AtMost(f64),
}

impl Figure {
    pub(crate) fn new(name: String, value: f64, unit: Unit, goal: Option<Goal>) -> Self {
        Self {
            name,
            value,
            unit,
            goal,
        }
    }

    fn goal(&self) -> String {
        match self.goal {
            None => "no goal".to_string(),
            Some(Goal::AtMost(most)) => {
                let met = if self.is_met() { "met" } else { "NOT MET" };
                format!("goal {most} or less: {met}")
            }
        }
    }

    fn is_met(&self) -> bool {
        self.goal
            .is_none_or(|Goal::AtMost(most)| self.value <= most)
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Milliseconds => "ms",
            Self::Megabytes => "MB",
            Self::Ratio => "x",
        })
    }
}

/// A line per figure: its name first; value, unit and goal last.
pub(crate) fn table(figures: &[Figure]) -> String {
    let width = figures
        .iter()
        .map(|figure| figure.name.len())
        .max()
        .unwrap_or(0);
    let line = |figure: &Figure| {
        let Figure {
            name, value, unit, ..
        } = figure;
        format!("{name:<width$}  {value:>7.2} {unit}  {}\n", figure.goal())
    };
    figures.iter().map(line).collect()
}

/// How many goals are met.
pub(crate) fn summary(figures: &[Figure]) -> String {
    let goals = figures.iter().filter(|figure| figure.goal.is_some());
    let met = goals.clone().filter(|figure| figure.is_met()).count();
    format!("{met} of {} goals met", goals.count())
}
