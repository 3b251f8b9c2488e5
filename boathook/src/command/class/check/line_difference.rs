//! Compares two texts line by line, and describes the changed lines with the lines around them.

/// The number of unchanged lines that are printed before and after changed lines.
const CONTEXT_LINES: usize = 3;

/// The maximum number of pairs of lines that are compared, which limits the memory for the
/// comparison. In longer texts, all lines between the first and the last difference count as
/// changed.
const MAX_COMPARED_PAIRS: usize = 4 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line<'a> {
    Unchanged(&'a str),
    Removed(&'a str),
    Added(&'a str),
}

impl Line<'_> {
    fn is_changed(self) -> bool {
        !matches!(self, Line::Unchanged(_))
    }

    fn format(self) -> String {
        match self {
            Line::Unchanged(text) => format!("  {text}"),
            Line::Removed(text) => format!("- {text}"),
            Line::Added(text) => format!("+ {text}"),
        }
    }
}

#[derive(Debug)]
pub(super) struct LineDifference<'a>(Vec<Line<'a>>);

impl<'a> LineDifference<'a> {
    pub(super) fn new(old_text: &'a str, new_text: &'a str) -> Self {
        let (old_lines, new_lines): (Vec<&str>, Vec<&str>) =
            (old_text.lines().collect(), new_text.lines().collect());
        let is_same_line = |(old_line, new_line): &(&&str, &&str)| old_line == new_line;
        let prefix_length = old_lines
            .iter()
            .zip(&new_lines)
            .take_while(is_same_line)
            .count();
        let (old_rest, new_rest) = (&old_lines[prefix_length..], &new_lines[prefix_length..]);
        let suffix_length = old_rest
            .iter()
            .rev()
            .zip(new_rest.iter().rev())
            .take_while(is_same_line)
            .count();
        let (old_middle, suffix) = old_rest.split_at(old_rest.len() - suffix_length);
        let new_middle = &new_rest[..new_rest.len() - suffix_length];
        let prefix = old_lines[..prefix_length].iter();
        let mut lines: Vec<Line> = prefix.map(|line| Line::Unchanged(line)).collect();
        lines.extend(compare_lines(old_middle, new_middle));
        lines.extend(suffix.iter().map(|line| Line::Unchanged(line)));
        LineDifference(lines)
    }

    /// Returns the lines of the old text that were removed, with the prefix `- `, and those of the
    /// new text that were added, with the prefix `+ `.
    pub(super) fn list_changed_lines(&self) -> Vec<String> {
        let lines = self.0.iter().copied();
        lines
            .filter(|line| line.is_changed())
            .map(Line::format)
            .collect()
    }

    /// Returns the changed lines with the lines around them. Before each group of lines is the
    /// number of its first line in the old text.
    pub(super) fn list_lines_with_context(&self) -> Vec<String> {
        let lines = &self.0;
        let is_shown = |index: usize| {
            let first = index.saturating_sub(CONTEXT_LINES);
            let last = (index + CONTEXT_LINES).min(lines.len() - 1);
            lines[first..=last].iter().any(|line| line.is_changed())
        };
        let (mut shown_lines, mut old_line_number, mut is_in_group) = (Vec::new(), 1, false);
        for (index, line) in lines.iter().enumerate() {
            if is_shown(index) {
                if !is_in_group {
                    shown_lines.push(format!("line {old_line_number}:"));
                }
                shown_lines.push(line.format());
            }
            is_in_group = is_shown(index);
            old_line_number += usize::from(!matches!(line, Line::Added(_)));
        }
        shown_lines
    }
}

/// Compares the lines by their longest common subsequence.
fn compare_lines<'a>(old_lines: &[&'a str], new_lines: &[&'a str]) -> Vec<Line<'a>> {
    let width = new_lines.len() + 1;
    if (old_lines.len() + 1).saturating_mul(width) > MAX_COMPARED_PAIRS {
        let removed_lines = old_lines.iter().map(|line| Line::Removed(line));
        let added_lines = new_lines.iter().map(|line| Line::Added(line));
        return removed_lines.chain(added_lines).collect();
    }
    // `common_counts[old_index * width + new_index]` is the length of the longest common
    // subsequence of `old_lines[old_index..]` and `new_lines[new_index..]`.
    let mut common_counts = vec![0_usize; (old_lines.len() + 1) * width];
    for old_index in (0..old_lines.len()).rev() {
        for new_index in (0..new_lines.len()).rev() {
            common_counts[old_index * width + new_index] =
                if old_lines[old_index] == new_lines[new_index] {
                    common_counts[(old_index + 1) * width + new_index + 1] + 1
                } else {
                    common_counts[(old_index + 1) * width + new_index]
                        .max(common_counts[old_index * width + new_index + 1])
                };
        }
    }
    let (mut lines, mut old_index, mut new_index) = (Vec::new(), 0, 0);
    while old_index < old_lines.len() || new_index < new_lines.len() {
        let has_both = old_index < old_lines.len() && new_index < new_lines.len();
        if has_both && old_lines[old_index] == new_lines[new_index] {
            lines.push(Line::Unchanged(old_lines[old_index]));
            (old_index, new_index) = (old_index + 1, new_index + 1);
        } else if new_index == new_lines.len()
            || has_both
                && common_counts[(old_index + 1) * width + new_index]
                    >= common_counts[old_index * width + new_index + 1]
        {
            lines.push(Line::Removed(old_lines[old_index]));
            old_index += 1;
        } else {
            lines.push(Line::Added(new_lines[new_index]));
            new_index += 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changed_lines_are_listed() {
        for (old, new, expected) in [
            ("a\nb\nc\n", "a\nb\nc\n", ""),
            ("a\nb\nc\n", "a\nx\nc\n", "- b|+ x"),
            ("a\nc\n", "a\nb\nc\n", "+ b"),
            ("a\na\n", "a\n", "- a"),
            ("", "a\n", "+ a"),
            ("a\nb\nc\nd\n", "x\nb\nc\ny\n", "- a|+ x|- d|+ y"),
        ] {
            let difference = LineDifference::new(old, new);
            assert_eq!(difference.list_changed_lines().join("|"), expected);
        }
    }

    #[test]
    fn groups_of_changed_lines_have_their_context() {
        let numbers = |changed: &[usize]| -> String {
            let line = |number: usize| {
                let mark = if changed.contains(&number) {
                    "changed "
                } else {
                    ""
                };
                format!("{mark}{number}\n")
            };
            (1..=20).map(line).collect()
        };
        let (old, new) = (numbers(&[]), numbers(&[2, 15]));
        let difference = LineDifference::new(&old, &new);
        let wanted = "line 1:|  1|- 2|+ changed 2|  3|  4|  5|\
                      line 12:|  12|  13|  14|- 15|+ changed 15|  16|  17|  18";
        assert_eq!(difference.list_lines_with_context().join("|"), wanted);
        let long_text = "a\n".repeat(3000);
        let other_text = "b\n".repeat(3000);
        let difference = LineDifference::new(&long_text, &other_text);
        assert_eq!(difference.list_changed_lines().len(), 6000);
    }
}
