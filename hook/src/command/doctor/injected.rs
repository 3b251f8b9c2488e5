//! Compares the files and nodes that a container has now with its plan.

use crate::command::finding::{Finding, Verdict};
use crate::exit::ExitCode;

/// Returns a finding that lists the missing elements of the plan, or a finding with the text
/// `all` if nothing is missing.
pub(super) fn finding(missing: Result<Vec<String>, String>, all: &str, fix: &str) -> Finding {
    const SUBJECT: &str = "mounts";
    const SHOWN: usize = 8;
    let missing = match missing {
        Ok(missing) if missing.is_empty() => return Finding::new(Verdict::Ok, SUBJECT, all),
        Ok(missing) => missing,
        Err(text) => {
            return Finding::new(Verdict::Warning, SUBJECT, text)
                .fix("run this as root, in the host's mount namespace");
        }
    };
    let shown = &missing[..missing.len().min(SHOWN)];
    let mut text = format!("not in the container: {}", shown.join(", "));
    if missing.len() > SHOWN {
        text = format!("{text} and {} more", missing.len() - SHOWN);
    }
    Finding::fault(ExitCode::NotInjected, SUBJECT, text).fix(fix)
}
