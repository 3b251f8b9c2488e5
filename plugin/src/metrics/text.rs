//! Writes the text format (Prometheus, "Exposition formats").

use std::fmt::{Display, Write};

/// A page in the making.
#[derive(Debug, Default)]
pub(super) struct Text {
    page: String,
    family: &'static str,
}

impl Text {
    /// Begins a family of samples.
    pub(super) fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.family = name;
        // Writing to a string does not fail.
        let _ = writeln!(self.page, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// A sample of the family. Names of resources, and our own words, need no
    /// escapes.
    pub(super) fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<String> = labels.iter().map(|(k, v)| format!("{k}=\"{v}\"")).collect();
        let labels = match labels.is_empty() {
            true => String::new(),
            false => format!("{{{}}}", labels.join(",")),
        };
        let _ = writeln!(self.page, "{}{suffix}{labels} {value}", self.family);
    }
}

impl From<Text> for String {
    fn from(text: Text) -> String {
        text.page
    }
}
