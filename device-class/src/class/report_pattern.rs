//! Regular expressions for labels and for the output of programs. Starting a container does not
//! need them, so the programs that start containers do not compile them.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::Deserialize;

use super::attribute::Pattern;

static SKIPS_REPORT_PATTERNS: AtomicBool = AtomicBool::new(false);

/// Disables the compilation of each [`ReportPattern`] in this process. The hook calls this
/// function, because compiling expressions that it does not use would delay the start of every
/// container. The plugin and `boathook check` report mistakes in the expressions.
pub fn skip_report_patterns() {
    SKIPS_REPORT_PATTERNS.store(true, Ordering::Relaxed);
}

/// Returns whether [`skip_report_patterns`] was called in this process.
pub(super) fn skips_report_patterns() -> bool {
    SKIPS_REPORT_PATTERNS.load(Ordering::Relaxed)
}

/// A regular expression for a label, or for the output of a driver's program, which starting a
/// container does not need. It is `None` and matches nothing if [`skip_report_patterns`] was called
/// before it was read.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
pub struct ReportPattern(Option<regex_lite::Regex>);

impl TryFrom<String> for ReportPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if skips_report_patterns() {
            return Ok(ReportPattern(None));
        }
        Pattern::try_from(text).map(|pattern| ReportPattern(Some(pattern.0)))
    }
}

impl ReportPattern {
    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.0.as_ref().is_some_and(|regex| regex.is_match(text))
    }

    pub(crate) fn captures<'t>(&self, text: &'t str) -> Option<regex_lite::Captures<'t>> {
        self.0.as_ref()?.captures(text)
    }

    /// Returns the names of the groups, `None` for a group without a name.
    pub(crate) fn capture_names(&self) -> impl Iterator<Item = Option<&str>> {
        self.0.iter().flat_map(regex_lite::Regex::capture_names)
    }
}
