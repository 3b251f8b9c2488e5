//! Compares the files and device nodes that exist in a container with its injection plan.

use hook::exit::ExitCode;

use crate::command::finding::{Finding, Severity};

const SUBJECT: &str = "mounts";

/// The maximum number of missing files and device nodes that one finding lists.
const MAX_SHOWN_FILES: usize = 8;

/// Returns a finding with the files and device nodes of the plan that the container lacks. If none
/// is missing, the finding has the text `text_if_complete`.
pub(super) fn create_missing_files_finding(
    lookup_result: Result<Vec<String>, String>,
    text_if_complete: &str,
    fix: &str,
) -> Finding {
    let missing_files = match lookup_result {
        Ok(missing_files) if missing_files.is_empty() => {
            return Finding::new(Severity::Ok, SUBJECT, text_if_complete);
        }
        Ok(missing_files) => missing_files,
        Err(text) => {
            return Finding::new(Severity::Warning, SUBJECT, text)
                .with_fix("run this as root, in the host's mount namespace");
        }
    };
    Finding::new_fault(
        ExitCode::NotInjected,
        SUBJECT,
        describe_missing_files(&missing_files),
    )
    .with_fix(fix)
}

/// Returns a warning about files that the container lacks because masked paths of config.json hide
/// them. The finding is not a fault, because the devices may work without these files.
pub(super) fn create_masked_files_finding(missing_files: &[String]) -> Finding {
    Finding::new(
        Severity::Warning,
        SUBJECT,
        describe_missing_files(missing_files),
    )
    .with_fix(
        "if the devices need them, create the container again, with the runtime boathook or \
         without the masks that the warning names",
    )
}

fn describe_missing_files(missing_files: &[String]) -> String {
    let shown_files = &missing_files[..missing_files.len().min(MAX_SHOWN_FILES)];
    let text = format!("not in the container: {}", shown_files.join(", "));
    match missing_files.len() - shown_files.len() {
        0 => text,
        more_count => format!("{text} and {more_count} more"),
    }
}
