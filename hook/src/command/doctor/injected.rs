//! Compares the files and device nodes that a container has now with its injection plan.

use crate::command::finding::{Finding, Verdict};
use crate::exit::ExitCode;

const SUBJECT: &str = "mounts";

/// The maximum number of missing files and nodes that a finding lists.
const SHOWN: usize = 8;

/// Returns a finding that lists the missing files and nodes of the plan, or a finding with the text
/// `all` if none is missing.
pub(super) fn report_missing(
    missing: Result<Vec<String>, String>,
    all: &str,
    fix: &str,
) -> Finding {
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

/// Returns a finding about files that masked paths of config.json hide. The finding is no fault,
/// because the devices may work without these files.
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
