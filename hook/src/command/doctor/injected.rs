//! Compares the files and nodes that a container has now with its plan.

use crate::command::finding::{Finding, Verdict};
use crate::exit::ExitCode;

const SUBJECT: &str = "mounts";

/// The number of missing elements that a finding names.
const SHOWN: usize = 8;

/// Returns a finding that lists the missing elements of the plan, or a finding with the text
/// `all` if nothing is missing.
pub(super) fn finding(missing: Result<Vec<String>, String>, all: &str, fix: &str) -> Finding {
    let missing = match missing {
        Ok(missing) if missing.is_empty() => return Finding::new(Verdict::Ok, SUBJECT, all),
        Ok(missing) => missing,
        Err(text) => {
            return Finding::new(Verdict::Warning, SUBJECT, text)
                .fix("run this as root, in the host's mount namespace");
        }
    };
    Finding::fault(ExitCode::NotInjected, SUBJECT, describe_missing(&missing)).fix(fix)
}

/// Returns a finding about files that paths of config.json mask. The devices may work without
/// them, so that it is no fault.
pub(super) fn masked_finding(missing: &[String]) -> Finding {
    Finding::new(Verdict::Warning, SUBJECT, describe_missing(missing)).fix(
        "if the devices need them, create the container again, with the runtime boathook or \
         without the masks that the warning names",
    )
}

fn describe_missing(missing: &[String]) -> String {
    let shown = &missing[..missing.len().min(SHOWN)];
    let text = format!("not in the container: {}", shown.join(", "));
    match missing.len() - shown.len() {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}
