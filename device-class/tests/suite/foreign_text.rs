//! Text that a class file or config.toml should not contain: the answer is an
//! error with its line, never a panic. One bad file must not stop the plugin.

use std::fs;

use device_class::pattern::PathPattern;
use device_class::template::{Attributes, Template};
use device_class::{discover, host::RecordedHost};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::parse;
use crate::shipped::root;

/// The text of every shipped class file.
fn shipped() -> Vec<String> {
    let directory = root().join("classes");
    let paths = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|e| e == "toml"))
        .collect();
    files.sort();
    files
        .iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect()
}

#[test]
fn a_key_outside_ascii_is_an_error_with_its_line() {
    for (text, message) in [
        ("\né = x", "chips.toml:2: "),
        ("version = 1\nväärsion = [", "chips.toml:2: "),
        ("version = 1\nrequest = { 設 = ] }", "chips.toml:2: "),
        ("\"\u{1f600}\" = 1", "chips.toml:1: unknown key `\u{1f600}`"),
        ("version = \"\u{e9}\"", "chips.toml:1: version: "),
    ] {
        let error = parse("chips", text).unwrap_err();
        assert!(error.starts_with(message), "{text}: {error}");
    }
}

/// Text with characters of every length in UTF-8, and all that TOML, templates
/// and patterns give a meaning to.
fn foreign() -> impl Strategy<Value = String> {
    "([-a-z0-9_.=\"'{}\\[\\]:#*?!/, \n\\\\]|é|設|\u{1f600}|\u{301}|\u{feff}|\\PC){0,8}"
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_a_class_file_panic(
        file in any::<Index>(),
        edits in prop::collection::vec((any::<Index>(), 0..40_usize, foreign()), 0..4),
    ) {
        let mut text: Vec<char> = file.get(&shipped()).chars().collect();
        for (at, removed, inserted) in edits {
            let at = at.index(text.len() + 1);
            let end = (at + removed).min(text.len());
            text.splice(at..end, inserted.chars());
        }
        if let Ok(class) = parse("chips", &text.into_iter().collect::<String>()) {
            discover::find_devices(&class, &RecordedHost::default());
        }
    }

    #[test]
    fn no_text_makes_a_template_panic(text in foreign(), value in foreign()) {
        if let Ok(template) = Template::try_from(text) {
            let known: Attributes = template.attributes().map(|name| (name.clone(), value.clone())).collect();
            let _ = template.fill(&known);
        }
    }

    #[test]
    fn no_text_makes_a_pattern_panic(text in foreign(), name in foreign()) {
        if let Ok(pattern) = PathPattern::try_from(format!("/{text}")) {
            for component in pattern.components() {
                component.capture_attributes(&name, &Attributes::new());
                component.fixed_name(&Attributes::new());
            }
        }
    }
}
