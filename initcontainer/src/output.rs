//! Prints the output of the commands: either lines of text while a command runs, or one JSON
//! document when the command ends.

use std::path::PathBuf;

use daemon::command_line::{print_json, print_lines};
use initcontainer::step::Step;
use runtime_config::Engine;
use serde::Serialize;
use serde_json::Value;

/// The output of one command. It prints text at once, or collects the JSON document.
pub(crate) struct Output {
    is_json: bool,
    is_verbose: bool,
    report: JsonReport,
}

/// The JSON document of `install`, `upgrade` and `uninstall`.
#[derive(Debug, Default, Serialize)]
struct JsonReport {
    /// Whether the command only printed its steps and changed nothing.
    #[serde(rename = "dry_run")]
    is_dry_run: bool,
    /// The installed release. It is missing in the document of `uninstall`.
    #[serde(rename = "installed", skip_serializing_if = "Option::is_none")]
    installed_release: Option<InstalledRelease>,
    notes: Vec<String>,
    /// The executed steps or, in a dry run, the planned steps.
    steps: Vec<Value>,
    #[serde(rename = "restarted")]
    restarted_engines: Vec<RestartedEngine>,
    /// The files that `uninstall` keeps, each with the reason.
    #[serde(rename = "kept")]
    kept_files: Vec<String>,
    #[serde(rename = "next")]
    next_commands: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct InstalledRelease {
    pub(crate) version: String,
    pub(crate) directory: PathBuf,
    pub(crate) classes: Vec<String>,
    pub(crate) engines: Vec<Engine>,
}

#[derive(Debug, Serialize)]
struct RestartedEngine {
    engine: Engine,
    /// The command or the signal that made the engine read its configuration.
    action: String,
}

impl Output {
    pub(crate) fn new(is_json: bool, is_verbose: bool, is_dry_run: bool) -> Self {
        let report = JsonReport {
            is_dry_run,
            ..JsonReport::default()
        };
        Self {
            is_json,
            is_verbose,
            report,
        }
    }

    /// Prints lines of text, unless the output is JSON. The JSON document contains the same
    /// information in its fields.
    pub(crate) fn print_text(&self, lines: &str) {
        if !self.is_json {
            // An error is ignored, because the installation must be completed even if nobody reads
            // the output.
            let _ = print_lines(lines);
        }
    }

    /// Prints a note for the operator. The JSON document lists it under `notes`.
    pub(crate) fn report_note(&mut self, note: &str) {
        self.print_text(&format!("{note}\n"));
        self.report.notes.push(note.to_owned());
    }

    /// Prints a step that was executed or, in a dry run, planned. The JSON document lists it under
    /// `steps`.
    pub(crate) fn report_step(&mut self, step: &Step) {
        self.print_text(&if self.is_verbose {
            format!("{step:#}")
        } else {
            step.to_string()
        });
        self.report.steps.push(step.to_json(self.is_verbose));
    }

    /// Sets the installed release in the JSON document. The text output prints a summary instead.
    pub(crate) fn set_installed_release(&mut self, release: InstalledRelease) {
        self.report.installed_release = Some(release);
    }

    /// Prints the action that made an engine read its configuration, such as
    /// `systemctl reload docker.service`. The JSON document lists it under `restarted`.
    pub(crate) fn report_restart(&mut self, engine: Engine, action: String) {
        self.print_text(&format!("{engine}: {action}\n"));
        let restarted_engine = RestartedEngine { engine, action };
        self.report.restarted_engines.push(restarted_engine);
    }

    /// Prints a file that `uninstall` keeps. `description` contains the path of the file and the
    /// reason.
    pub(crate) fn report_kept_file(&mut self, description: &str) {
        self.print_text(&format!("kept {description}\n"));
        self.report.kept_files.push(description.to_owned());
    }

    /// Sets the commands that the operator should run next, in the JSON document. If the output is
    /// text, the caller prints these commands.
    pub(crate) fn set_next_commands(&mut self, commands: Vec<String>) {
        self.report.next_commands = commands;
    }

    /// Prints the JSON document if the output is JSON. A command calls this at its end.
    pub(crate) fn print_report(&self) {
        if self.is_json {
            let _ = print_json(&self.report);
        }
    }
}
