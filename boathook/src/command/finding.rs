//! Declares the findings that `boathook check`, `boathook doctor` and `boathook class check` print.
//! A finding has a severity, a subject, a text and a fix.

use std::io::{self, Write};

use device_class::config::Config;
use device_class::discover::HardwareReport;
use hook::exit::ExitCode;
use serde::Serialize;

use super::output::Style;

/// The severity of a finding. Later variants are more serious, so the maximum is the worst one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    Ok,
    Note,
    Warning,
    Error,
}

/// The topic of a finding, for commands that treat findings about some topics differently.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum FindingKind {
    #[default]
    Other,
    /// The devices that a class finds: their number, their health, or what was left out.
    Devices,
    NoDevice,
}

#[derive(Debug, Serialize)]
pub(super) struct Finding {
    #[serde(rename = "verdict")]
    pub(super) severity: Severity,
    pub(super) subject: String,
    pub(super) text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fix: Option<String>,
    #[serde(skip)]
    pub(super) kind: FindingKind,
    /// The exit code that `boathook doctor` returns for this finding. It is `None` if the finding
    /// is not a fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fault: Option<ExitCode>,
    /// The text that `boathook doctor` prints in its last line instead of `no fault found`.
    #[serde(skip)]
    pub(super) summary: Option<String>,
}

impl Finding {
    pub(super) fn new(
        severity: Severity,
        subject: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        Finding {
            severity,
            subject: subject.into(),
            text: text.into(),
            fix: None,
            kind: FindingKind::Other,
            fault: None,
            summary: None,
        }
    }

    /// Creates a fault: an error for which `boathook doctor` returns the exit code `code`.
    pub(super) fn new_fault(
        code: ExitCode,
        subject: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        Finding {
            fault: Some(code),
            ..Finding::new(Severity::Error, subject, text)
        }
    }

    /// Creates the finding that no class file is installed. If `fault` contains an exit code of
    /// `boathook doctor`, the finding is an error. Otherwise it is a warning.
    pub(super) fn new_missing_class_files(config: &Config, fault: Option<ExitCode>) -> Self {
        let finding = Finding {
            fault,
            severity: fault.map_or(Severity::Warning, |_| Severity::Error),
            ..Finding::new(
                Severity::Ok,
                "classes",
                describe_missing_class_files(config),
            )
        };
        finding.with_fix(
            "install the classes with `boathook-init install`, or put a class file into \
             /etc/boathook/classes.d",
        )
    }

    /// Creates an error with the text `reason`. If `reason` says that a file does not exist, adds a
    /// fix to the finding.
    pub(super) fn new_error_with_hint(subject: &str, reason: &str) -> Self {
        let finding = Finding::new(Severity::Error, subject, reason);
        if reason.ends_with("does not exist") {
            finding.with_fix("install what has it, or add `optional = true` in the class")
        } else {
            finding
        }
    }

    pub(super) fn from_hardware_report(subject: &str, report: HardwareReport) -> Self {
        let severity = if report.is_intended {
            Severity::Note
        } else {
            Severity::Warning
        };
        Finding::new(severity, subject, report.text)
    }

    pub(super) fn with_kind(mut self, kind: FindingKind) -> Self {
        self.kind = kind;
        self
    }

    pub(super) fn with_fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// Returns the table rows for the finding. The fix, if there is one, has its own row.
    fn to_rows(&self) -> impl Iterator<Item = [String; 3]> {
        let severity = match self.severity {
            Severity::Ok => "ok",
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        let row = [severity.to_owned(), self.subject.clone(), self.text.clone()];
        let fix = self
            .fix
            .iter()
            .map(|fix| [String::new(), String::new(), format!("fix: {fix}")]);
        std::iter::once(row).chain(fix)
    }
}

pub(super) fn describe_missing_class_files(config: &Config) -> String {
    let directories = config.classes.iter().map(|path| path.display().to_string());
    let directories: Vec<_> = directories.collect();
    format!("no class file in {}", directories.join(" or "))
}

/// Returns the exit code of `boathook check` or `boathook class check`: a failure if at least one
/// finding is an error.
pub(super) fn to_exit_code(findings: &[Finding]) -> ExitCode {
    let is_error = |finding: &Finding| finding.severity == Severity::Error;
    if findings.iter().any(is_error) {
        ExitCode::Failure
    } else {
        ExitCode::Success
    }
}

pub(super) fn print_table(out: &mut impl Write, findings: &[Finding]) -> io::Result<()> {
    let rows: Vec<_> = findings.iter().flat_map(Finding::to_rows).collect();
    Style::for_stdout().write_table(out, &rows)
}
