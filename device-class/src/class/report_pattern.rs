//! Regular expressions for node labels and for the output of programs. They are not needed to start
//! a container, so the programs that start containers do not compile them.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::Deserialize;

use super::attribute::RegexPattern;

static ARE_REPORT_PATTERNS_DISABLED: AtomicBool = AtomicBool::new(false);

/// Turns off the compilation of every [`ReportPattern`] in this process. The hook calls this
/// function, because compiling expressions that it does not use would delay the start of every
/// container. Mistakes in the expressions are still reported by the plugin and by `boathook check`.
pub fn disable_report_patterns() {
    ARE_REPORT_PATTERNS_DISABLED.store(true, Ordering::Relaxed);
}

/// Returns whether [`disable_report_patterns`] was called in this process.
pub(super) fn are_report_patterns_disabled() -> bool {
    ARE_REPORT_PATTERNS_DISABLED.load(Ordering::Relaxed)
}

/// A regular expression for a node label or for the output of a driver's program. If
/// [`disable_report_patterns`] was called before the class file was read, the expression is `None` and
/// matches nothing.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
pub struct ReportPattern(Option<regex_lite::Regex>);

impl TryFrom<String> for ReportPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if are_report_patterns_disabled() {
            return Ok(ReportPattern(None));
        }
        RegexPattern::try_from(text).map(|pattern| ReportPattern(Some(pattern.0)))
    }
}

impl ReportPattern {
    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.0.as_ref().is_some_and(|regex| regex.is_match(text))
    }

    pub(crate) fn captures<'t>(&self, text: &'t str) -> Option<regex_lite::Captures<'t>> {
        self.0.as_ref()?.captures(text)
    }

    /// Returns the names of the expression's groups. A group without a name is `None`.
    pub(crate) fn capture_names(&self) -> impl Iterator<Item = Option<&str>> {
        self.0.iter().flat_map(regex_lite::Regex::capture_names)
    }
}
