//! The outcomes as bars, in SVG.

use std::fmt::Write;

use super::report::Outcome;

const WIDTH: usize = 760;
const LEFT: usize = 150;
const BAR: usize = 18;
const ROW: usize = 26;
const GAP: usize = 46;

/// A chart of three parts, each with a bar for each strategy.
pub(super) fn svg(outcomes: &[Outcome]) -> String {
    let parts: [(&str, Vec<f64>); 3] = [
        (
            "stranded units, in percent of all",
            outcomes.iter().map(|outcome| outcome.stranded).collect(),
        ),
        (
            "pods that a kubelet refused",
            outcomes
                .iter()
                .map(|outcome| outcome.refused as f64)
                .collect(),
        ),
        (
            "devices guessed wrongly, in percent",
            outcomes
                .iter()
                .map(|outcome| outcome.wrong.unwrap_or(0.0))
                .collect(),
        ),
    ];
    let height = parts.len() * (GAP + outcomes.len() * ROW) + 10;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    let mut top = 0;
    for (title, values) in parts {
        let _ = writeln!(
            svg,
            "<text x=\"10\" y=\"{}\" font-weight=\"bold\">{title}</text>",
            top + 28
        );
        top += GAP - 6;
        let most = values.iter().copied().fold(0.01, f64::max);
        for (outcome, value) in outcomes.iter().zip(values) {
            let length = (WIDTH - LEFT - 80) as f64 * value / most;
            let (middle, name) = (top + 13, outcome.strategy.name);
            let end = LEFT as f64 + length + 6.0;
            let _ = writeln!(
                svg,
                "<text x=\"10\" y=\"{middle}\">{name}</text>\
                 <rect x=\"{LEFT}\" y=\"{top}\" width=\"{length:.1}\" height=\"{BAR}\" \
                 fill=\"#4878a8\"/>\
                 <text x=\"{end:.1}\" y=\"{middle}\">{value:.2}</text>"
            );
            top += ROW;
        }
        top += 6;
    }
    svg + "</svg>\n"
}
