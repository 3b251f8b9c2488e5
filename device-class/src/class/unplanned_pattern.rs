//! Regular expressions for labels and for the output of programs. No injection plan depends on
//! them, so the programs that start containers skip them.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::Deserialize;

use super::attribute::Pattern;

static SKIPS_PATTERNS: AtomicBool = AtomicBool::new(false);

/// Makes this process read class files without compiling the expressions of [`UnplannedPattern`].
/// The hook calls this function, because compiling expressions that it does not use would delay the
/// start of every container. The plugin and `boathook check` report mistakes in the expressions.
pub fn leave_out_unplanned_patterns() {
    SKIPS_PATTERNS.store(true, Ordering::Relaxed);
}

/// Returns whether this process reads class files without compiling the expressions of
/// [`UnplannedPattern`].
pub(super) fn skips_unplanned_patterns() -> bool {
    SKIPS_PATTERNS.load(Ordering::Relaxed)
}

/// A regular expression that no injection plan depends on: for a label, or for the output of a
/// driver's program. The value is `None`, and matches nothing, after
/// [`leave_out_unplanned_patterns`].
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
pub struct UnplannedPattern(Option<regex_lite::Regex>);

impl TryFrom<String> for UnplannedPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if skips_unplanned_patterns() {
            return Ok(UnplannedPattern(None));
        }
        Pattern::try_from(text).map(|pattern| UnplannedPattern(Some(pattern.0)))
    }
}

impl UnplannedPattern {
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
