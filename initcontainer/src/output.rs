//! What the commands print: lines as things happen, or one JSON document at the end.

use command_line::{print, print_json};
use initcontainer::step::Step;
use runtime_config::Engine;
use serde::Serialize;
use serde_json::Value;

pub(crate) struct Output {
    json: bool,
    verbose: bool,
    report: Report,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    /// Whether nothing was changed.
    dry_run: bool,
    /// What is installed; absent in a removal.
    #[serde(skip_serializing_if = "Option::is_none")]
    installed: Option<Installed>,
    /// What the operator should know besides.
    notes: Vec<String>,
    /// What was done or, in a dry run, would be done.
    steps: Vec<Value>,
    /// The engines that were restarted or reloaded.
    restarted: Vec<Restarted>,
    /// What a removal leaves, and why.
    kept: Vec<String>,
    /// The commands to run next.
    next: Vec<String>,
}

/// A release on a host.
#[derive(Debug, Serialize)]
pub(crate) struct Installed {
    pub(crate) version: String,
    pub(crate) directory: &'static str,
    pub(crate) classes: Vec<String>,
    pub(crate) engines: Vec<Engine>,
}

#[derive(Debug, Serialize)]
struct Restarted {
    engine: Engine,
    action: String,
}

impl Output {
    pub(crate) fn new(json: bool, verbose: bool, dry_run: bool) -> Self {
        let report = Report {
            dry_run,
            ..Report::default()
        };
        Self {
            json,
            verbose,
            report,
        }
    }

    /// Prints lines that JSON has in another form.
    pub(crate) fn text(&self, lines: &str) {
        if !self.json {
            // A reader that has gone away must not end an installation halfway, so what
            // cannot be printed is lost.
            let _ = print(lines);
        }
    }

    pub(crate) fn note(&mut self, note: &str) {
        self.text(&format!("{note}\n"));
        self.report.notes.push(note.to_owned());
    }

    pub(crate) fn step(&mut self, step: &Step) {
        self.text(&match self.verbose {
            true => format!("{step:#}"),
            false => step.to_string(),
        });
        self.report.steps.push(step.to_json(self.verbose));
    }

    pub(crate) fn installed(&mut self, installed: Installed) {
        self.report.installed = Some(installed);
    }

    /// What was done to have an engine read its configuration.
    pub(crate) fn restarted(&mut self, engine: Engine, action: String) {
        self.text(&format!("{engine}: {action}\n"));
        self.report.restarted.push(Restarted { engine, action });
    }

    /// Reports what a removal leaves, and why.
    pub(crate) fn report_kept(&mut self, kept: &str) {
        self.text(&format!("kept {kept}\n"));
        self.report.kept.push(kept.to_owned());
    }

    /// The commands to run next, which the text has in sentences of its own.
    pub(crate) fn next(&mut self, commands: Vec<String>) {
        self.report.next = commands;
    }

    /// Prints the JSON document if that is wanted.
    pub(crate) fn finish(&self) {
        if self.json {
            let _ = print_json(&self.report);
        }
    }
}
