//! Regular expressions on which no injection plan depends.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::Deserialize;

use super::attribute::Pattern;

static ARE_LEFT_OUT: AtomicBool = AtomicBool::new(false);

/// Makes this process read class files without the expressions on which no plan depends. A
/// program that starts a container would compile them in vain each time. A mistake in them is
/// reported by the plugin and by `boathook check`.
pub fn leave_out_unplanned_patterns() {
    ARE_LEFT_OUT.store(true, Ordering::Relaxed);
}

/// Returns whether [`leave_out_unplanned_patterns`] was called.
pub(super) fn are_left_out() -> bool {
    ARE_LEFT_OUT.load(Ordering::Relaxed)
}

/// A regular expression for a label, or for the output of a driver's program. It is `None` in a
/// process that leaves them out.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
pub struct UnplannedPattern(Option<regex_lite::Regex>);

impl TryFrom<String> for UnplannedPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if are_left_out() {
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
