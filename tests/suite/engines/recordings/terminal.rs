//! A shell on a machine whose lines and output are recorded.

use std::env;
use std::fs;

use harness::captured::Captured;
use harness::patience::wait_until;

use super::super::machine::Machine;
use super::PROGRAMS;
use super::cast::{self, Event};

/// The time in seconds from a line that was typed to its output.
const BEFORE_OUTPUT: f64 = 0.8;

/// The time in seconds in which a viewer reads a line of output, and the bounds for a whole output.
const TO_READ_A_LINE: f64 = 0.5;
const TO_READ: (f64, f64) = (1.5, 6.0);

pub(super) struct Terminal<'a> {
    machine: &'a Machine,
    /// Variables that the shell has.
    variables: Vec<(&'static str, String)>,
    events: Vec<Event>,
    now: f64,
}

impl<'a> Terminal<'a> {
    pub(super) fn new(machine: &'a Machine, variables: Vec<(&'static str, String)>) -> Self {
        Self {
            machine,
            variables,
            events: Vec::new(),
            now: 0.0,
        }
    }

    pub(super) fn set(&mut self, variable: &'static str, value: String) {
        self.variables.push((variable, value));
    }

    /// Types a line and records its output, whether or not it succeeds.
    pub(super) fn run(&mut self, line: &str) {
        let output = self.execute(line);
        self.record(line, &output);
    }

    /// Types a line, which is repeated until its output is this, and records the last output.
    #[track_caller]
    pub(super) fn run_until(&mut self, line: &str, expected: &str) {
        self.wait_until(line, expected);
        self.record(line, expected);
    }

    /// Repeats a line until its output is this, and records nothing.
    #[track_caller]
    pub(super) fn wait_until(&self, line: &str, expected: &str) {
        let mut output = String::new();
        let is_so = wait_until(|| {
            output = self.execute(line);
            output == expected
        });
        let log = self.execute("cat follow.log");
        assert!(is_so, "{line}: {output}{log}");
    }

    /// Types a comment.
    pub(super) fn remark(&mut self, text: &str) {
        self.append(format!("\u{1b}[36m# {text}\u{1b}[0m\n"), TO_READ.0);
    }

    /// Returns the output of a line that is not recorded.
    fn execute(&self, line: &str) -> String {
        let mut shell = self.machine.private.command("/bin/sh");
        shell
            .args(["-c", &format!("cd /root\nexec 2>&1\n{line}")])
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .env("CLICOLOR_FORCE", "1")
            .env("COLUMNS", cast::WIDTH.to_string())
            .env("PATH", format!("{PROGRAMS}:/usr/sbin:/usr/bin:/sbin:/bin"));
        Captured::run(&mut shell).unwrap().stdout
    }

    fn record(&mut self, line: &str, output: &str) {
        self.append(format!("\u{1b}[1m$ {line}\u{1b}[0m\n"), BEFORE_OUTPUT);
        let lines = output.lines().count() as f64;
        let (least, most) = TO_READ;
        self.append(
            output.to_owned(),
            (lines * TO_READ_A_LINE).clamp(least, most),
        );
    }

    fn append(&mut self, text: String, seconds: f64) {
        if !text.is_empty() {
            let at = self.now;
            self.events.push(Event { at, text });
        }
        self.now += seconds;
    }

    /// Compares the text with that of the recording, or writes it if it differs and
    /// `make recordings` asks for it.
    #[track_caller]
    pub(super) fn finish(self, name: &str, title: &str) {
        let text: String = self
            .events
            .iter()
            .map(|event| event.text.as_str())
            .collect();
        let path = super::file(name, "cast");
        let printed = cast::lasting_words(&text);
        if env::var_os(super::WRITE).is_none() {
            let recorded = cast::lasting_words(&cast::read(&path));
            assert_eq!(recorded, printed, "{name}: make recordings");
        } else if !path.exists() || cast::lasting_words(&cast::read(&path)) != printed {
            fs::write(path, cast::encode(title, &self.events, self.now + 3.0)).unwrap();
        }
    }
}
