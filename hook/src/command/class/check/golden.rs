//! Compares the devices that a class finds on a recorded host, and the injection plans of
//! containers, with a golden file. Boathook's own classes are tested in the same way.

use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use device_class::discover;
use device_class::host::RecordedHost;
use device_class::{DeviceClass, HostView};
use injection_plan::plan::{self, Authority, PlanInput, SpecDevices};
use injection_plan::request::Request;

use crate::command::CommandError;
use crate::command::finding::{Finding, Verdict};
use crate::log::chain;

/// The prefix of the line in a golden file that has the environment variables of a container. The
/// injection plan of the container follows.
const REQUEST_PREFIX: &str = "$ ";

/// The result of comparing a class with a golden file.
pub(super) struct Comparison {
    pub(super) finding: Finding,
    /// The lines that differ. Lines of the golden file begin with `-`, and lines that describe the
    /// class with `+`.
    pub(super) difference: Vec<String>,
}

/// Compares the class with the golden file. If they differ and `update` is true, the file is
/// written: its requests are kept, and a new file has one request for all devices.
#[expect(
    clippy::disallowed_methods,
    reason = "the user names the file, and waits"
)]
pub(super) fn compare(
    file: &Path,
    update: bool,
    class: &DeviceClass,
    host: &RecordedHost,
) -> Result<Comparison, CommandError> {
    let golden = match fs::read_to_string(file) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => {
            let path = file.into();
            return Err(CommandError::Golden { path, error });
        }
    };
    let found = describe(class, host, golden.as_deref().unwrap_or_default());
    if golden.as_ref() == Some(&found) {
        let text = format!("the class finds what {} says", file.display());
        return Ok(Comparison::without_difference(Verdict::Ok, text));
    }
    if update {
        fs::write(file, found).map_err(|error| {
            let path = file.into();
            CommandError::File { path, error }
        })?;
        let text = format!("{} is written; read what changed", file.display());
        return Ok(Comparison::without_difference(Verdict::Note, text));
    }
    let Some(golden) = golden else {
        let text = format!("{} does not exist", file.display());
        let mut comparison = Comparison::without_difference(Verdict::Error, text);
        comparison.finding = comparison
            .finding
            .fix("write it with --update, and read it");
        return Ok(comparison);
    };
    let text = format!("the class does not find what {} says", file.display());
    let fix = "if the lines with + are right, write them with --update";
    Ok(Comparison {
        finding: Finding::new(Verdict::Error, "golden", text).fix(fix),
        difference: list_differences(&golden, &found),
    })
}

impl Comparison {
    fn without_difference(verdict: Verdict, text: String) -> Self {
        Comparison {
            finding: Finding::new(verdict, "golden", text),
            difference: Vec::new(),
        }
    }
}

/// Describes the devices of the class, and the injection plans of the requests in `golden`.
fn describe(class: &DeviceClass, host: &dyn HostView, golden: &str) -> String {
    let mut text = discover::devices(class, host).to_string();
    let mut requests: Vec<String> = golden
        .lines()
        .filter_map(|line| line.strip_prefix(REQUEST_PREFIX).map(str::to_owned))
        .collect();
    if requests.is_empty() {
        requests.push(format!("{}=all", class.spec.request.env));
    }
    for request in requests {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n{REQUEST_PREFIX}{request}\n{}",
            describe_plan(class, host, &request)
        );
    }
    text
}

/// Describes the injection plan of a container with the environment variables `variables`, which
/// are separated by blanks, or the reason why it is refused. The text ends with a line feed.
fn describe_plan(class: &DeviceClass, host: &dyn HostView, variables: &str) -> String {
    let variables: Vec<&str> = variables.split_whitespace().collect();
    let request = match Request::find(class, &variables.into(), |_| None) {
        Ok(Some(request)) => request,
        Ok(None) => return "no request\n".to_owned(),
        Err(error) => return format!("refused: {}\n", chain(&error)),
    };
    let found = match discover::look_up(class, request.wanted(), host) {
        Ok(found) => found,
        Err(error) => return format!("refused: {}\n", chain(&error)),
    };
    let authority = Authority::Requester {
        reason: "class check".to_owned(),
        trusted_capabilities: true,
    };
    let input = PlanInput {
        class,
        request: &request,
        found: &found,
        authority: &authority,
    };
    match plan::plan(&[input], &SpecDevices::default()) {
        Ok(plan) => plan.to_string(),
        Err(error) => format!("refused: {}\n", chain(&error)),
    }
}

/// Returns the lines from the first to the last difference, first those of `golden` and then those
/// of `found`.
fn list_differences(golden: &str, found: &str) -> Vec<String> {
    let (golden, found): (Vec<&str>, Vec<&str>) =
        (golden.lines().collect(), found.lines().collect());
    let same = |(one, other): &(&&str, &&str)| one == other;
    let start = golden.iter().zip(&found).take_while(same).count();
    let ends = golden[start..]
        .iter()
        .rev()
        .zip(found[start..].iter().rev());
    let end = ends.take_while(same).count();
    let removed = golden[start..golden.len() - end]
        .iter()
        .map(|line| format!("- {line}"));
    let added = found[start..found.len() - end]
        .iter()
        .map(|line| format!("+ {line}"));
    removed.chain(added).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_between_the_first_and_the_last_difference_are_listed() {
        for (golden, found, expected) in [
            ("a\nb\nc\n", "a\nb\nc\n", ""),
            ("a\nb\nc\n", "a\nx\nc\n", "- b|+ x"),
            ("a\nc\n", "a\nb\nc\n", "+ b"),
            ("a\na\n", "a\n", "- a"),
            ("", "a\n", "+ a"),
        ] {
            assert_eq!(list_differences(golden, found).join("|"), expected);
        }
    }
}
