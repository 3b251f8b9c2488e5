//! Prints the output of the commands: lines of text while a command runs, or one JSON document at
//! its end.

use std::path::PathBuf;

use command_line::{print, print_json};
use initcontainer::step::Step;
use runtime_config::Engine;
use serde::Serialize;
use serde_json::Value;

pub(crate) struct Output {
    json: bool,
    verbose: bool,
    report: JsonReport,
}

/// The JSON document of `install`, `upgrade` and `uninstall`.
#[derive(Debug, Default, Serialize)]
struct JsonReport {
    /// Whether the command only printed its steps and changed nothing.
    dry_run: bool,
    /// The installed release. It is absent after a removal.
    #[serde(skip_serializing_if = "Option::is_none")]
    installed: Option<InstalledRelease>,
    /// Further information for the operator.
    notes: Vec<String>,
    /// The executed steps or, in a dry run, the planned steps.
    steps: Vec<Value>,
    /// The engines that were restarted or reloaded.
    restarted: Vec<RestartedEngine>,
    /// The files that a removal keeps, each with the reason.
    kept: Vec<String>,
    /// The commands that the operator should run next.
    next: Vec<String>,
}

/// A release that was installed on a host.
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
    /// The command or the signal that was used.
    action: String,
}

impl Output {
    pub(crate) fn new(json: bool, verbose: bool, dry_run: bool) -> Self {
        let report = JsonReport {
            dry_run,
            ..JsonReport::default()
        };
        Self {
            json,
            verbose,
            report,
        }
    }

    /// Prints lines unless the output is JSON. The JSON document has the same information in its
    /// own fields.
    pub(crate) fn print_text(&self, lines: &str) {
        if !self.json {
            // The result is ignored, because the installation must be completed even if the reader
            // of a pipe has ended.
            let _ = print(lines);
        }
    }

    /// Reports further information for the operator.
    pub(crate) fn report_note(&mut self, note: &str) {
        self.print_text(&format!("{note}\n"));
        self.report.notes.push(note.to_owned());
    }

    /// Reports an executed or planned step.
    pub(crate) fn report_step(&mut self, step: &Step) {
        self.print_text(&if self.verbose {
            format!("{step:#}")
        } else {
            step.to_string()
        });
        self.report.steps.push(step.to_json(self.verbose));
    }

    /// Sets the installed release in the JSON document. The text output has a summary instead.
    pub(crate) fn set_installed(&mut self, installed: InstalledRelease) {
        self.report.installed = Some(installed);
    }

    /// Reports the action that made an engine read its configuration.
    pub(crate) fn report_restart(&mut self, engine: Engine, action: String) {
        self.print_text(&format!("{engine}: {action}\n"));
        let restarted = RestartedEngine { engine, action };
        self.report.restarted.push(restarted);
    }

    /// Reports a file that a removal keeps, with the reason.
    pub(crate) fn report_kept(&mut self, kept: &str) {
        self.print_text(&format!("kept {kept}\n"));
        self.report.kept.push(kept.to_owned());
    }

    /// Sets the next commands in the JSON document. The text output prints them separately.
    pub(crate) fn set_next_commands(&mut self, commands: Vec<String>) {
        self.report.next = commands;
    }

    /// Prints the JSON document if the output is JSON.
    pub(crate) fn finish(&self) {
        if self.json {
            let _ = print_json(&self.report);
        }
    }
}
