//! Compares the devices and injection plans of a class on a recorded host with a golden file, which
//! contains the expected result. The tests of Boathook's own classes compare them in the same way.

use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use device_class::discover;
use device_class::host::RecordedHost;
use device_class::{DeviceClass, HostView};
use hook::log::format_error_chain;
use injection_plan::plan::{self, Authority, PlanInput, SpecDevices};
use injection_plan::request::Request;

use super::line_difference::LineDifference;
use crate::command::CommandError;
use crate::command::finding::{Finding, Severity};

/// The prefix of each line of a golden file with the variables of a container, such as
/// `$ DUMMY_VISIBLE_DEVICES=all`. The lines after it describe the injection plan of this container.
const REQUEST_LINE_PREFIX: &str = "$ ";

pub(super) struct GoldenComparison {
    pub(super) finding: Finding,
    /// The lines that differ. Lines of the golden file begin with `-`. Lines of the present result
    /// begin with `+`.
    pub(super) differing_lines: Vec<String>,
    /// The lines that differ, with the lines around them.
    pub(super) lines_with_context: Vec<String>,
}

/// Compares the devices and injection plans of the class with the golden file. If they differ and
/// `should_update` is true, writes a new golden file with the requests of the old file. If there
/// was no file, the new file has one request for all devices.
#[expect(
    clippy::disallowed_methods,
    reason = "the user names the file, and waits"
)]
pub(super) fn compare_with_golden_file(
    golden_path: &Path,
    should_update: bool,
    class: &DeviceClass,
    host: &RecordedHost,
) -> Result<GoldenComparison, CommandError> {
    let golden_text = match fs::read_to_string(golden_path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => {
            let path = golden_path.into();
            return Err(CommandError::GoldenFile { path, error });
        }
    };
    let current_text = describe_class(class, host, golden_text.as_deref().unwrap_or_default());
    if golden_text.as_ref() == Some(&current_text) {
        let text = format!("the class finds what {} says", golden_path.display());
        return Ok(GoldenComparison::new_without_differences(
            Severity::Ok,
            text,
        ));
    }
    if should_update {
        fs::write(golden_path, current_text).map_err(|error| {
            let path = golden_path.into();
            CommandError::File { path, error }
        })?;
        let text = format!("{} is written; read what changed", golden_path.display());
        return Ok(GoldenComparison::new_without_differences(
            Severity::Note,
            text,
        ));
    }
    let Some(golden_text) = golden_text else {
        let text = format!("{} does not exist", golden_path.display());
        let mut comparison = GoldenComparison::new_without_differences(Severity::Error, text);
        comparison.finding = comparison
            .finding
            .with_fix("write it with --update, and read it");
        return Ok(comparison);
    };
    let text = format!(
        "the class does not find what {} says",
        golden_path.display()
    );
    let fix = "if the lines with + are right, write them with --update";
    let difference = LineDifference::new(&golden_text, &current_text);
    Ok(GoldenComparison {
        finding: Finding::new(Severity::Error, "golden", text).with_fix(fix),
        differing_lines: difference.list_changed_lines(),
        lines_with_context: difference.list_lines_with_context(),
    })
}

impl GoldenComparison {
    fn new_without_differences(severity: Severity, text: String) -> Self {
        GoldenComparison {
            finding: Finding::new(severity, "golden", text),
            differing_lines: Vec::new(),
            lines_with_context: Vec::new(),
        }
    }
}

/// Returns the text of a golden file: the devices of the class, and an injection plan for each
/// request in `golden_text`. If `golden_text` has no request, plans one for all devices.
fn describe_class(class: &DeviceClass, host: &dyn HostView, golden_text: &str) -> String {
    let inventory = discover::find_devices(class, host);
    let mut text = inventory.to_string();
    for device in &inventory.devices {
        if let Some(count) = device.replicas {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{} is for {count} containers at once", device.id);
        }
    }
    let mut requests: Vec<String> = golden_text
        .lines()
        .filter_map(|line| line.strip_prefix(REQUEST_LINE_PREFIX).map(str::to_owned))
        .collect();
    if requests.is_empty() {
        requests.push(format!("{}=all", class.spec.request.env));
    }
    for request in requests {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n{REQUEST_LINE_PREFIX}{request}\n{}",
            describe_plan(class, host, &request)
        );
    }
    text
}

/// Describes the injection plan of a container, or the reason why the container is refused.
/// `environment` contains variables separated by blanks. The description ends with a line feed.
fn describe_plan(class: &DeviceClass, host: &dyn HostView, environment: &str) -> String {
    let variables: Vec<&str> = environment.split_whitespace().collect();
    let request = match Request::find(class, &variables.into(), |_| None) {
        Ok(Some(request)) => request,
        Ok(None) => return "no request\n".to_owned(),
        Err(error) => return format!("refused: {}\n", format_error_chain(&error)),
    };
    let found_class = match discover::look_up_class(class, request.edit_selection(), host) {
        Ok(found) => found,
        Err(error) => return format!("refused: {}\n", format_error_chain(&error)),
    };
    let authority = Authority::Requester {
        reason: "class check".to_owned(),
        allows_trusted_capabilities: true,
    };
    let input = PlanInput {
        class,
        request: &request,
        found_class: &found_class,
        authority: &authority,
    };
    match plan::plan_injection(&[input], &SpecDevices::default()) {
        Ok(plan) => plan.to_string(),
        Err(error) => format!("refused: {}\n", format_error_chain(&error)),
    }
}
