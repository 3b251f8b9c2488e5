//! Functions are verbs with objects, and types are nouns: a lone preposition, pronoun,
//! participle or adverb can be neither guessed nor searched for.

use std::fs;
use std::path::{Path, PathBuf};

use harness::binaries;

use super::read;

/// No function has one of these as its whole name: prepositions, pronouns, adverbs, participles, and
/// verbs without the object that a type would complete.
const FUNCTIONS: &str = "of at all one each has made told known kept gone left both own other \
    others same why it its about after before near such taken held what which whose who \
    fit inability answers arm renew vanished sick wants follow_up hang_ups called wrote serving \
    scanned is_hooks may_be_for refuse_taken makes_again or_remove touches as_sent has_news";

/// No type has one of these as its whole name.
const TYPES: &str = "Which Whose What Held Hold Chosen Seen Sight Near Wanted About Several \
    Looked Told Became Made Before After Found Given Taken Known Kept Gone Lost Left Other Others \
    Another Each Both One Own First Last Next Use LeftToOthers OfOne InOrder Unfit Claimed \
    Filtered Inherited Judged Listed Present Printed Recorded Refused Resolved Situation \
    Suspicion Terms Unclaimed Unreadable Unrequested Watched";

#[test]
fn functions_are_verbs_and_types_are_nouns() {
    let tree = binaries::source_tree();
    let mut refused = Vec::new();
    for file in rust_files(tree) {
        let path = file.strip_prefix(tree).unwrap();
        for (index, line) in read(&file).lines().enumerate() {
            let names = refused_names(line).into_iter();
            refused.extend(names.map(|name| format!("{}:{}: {name}", path.display(), index + 1)));
        }
    }
    assert!(
        refused.is_empty(),
        "functions need a verb with its object, types a noun (CONTRIBUTING.md, Style):\n{}",
        refused.join("\n")
    );
}

#[test]
fn only_declarations_with_a_whole_name_are_refused() {
    // A tab keeps these lines from being declarations themselves.
    for (line, names) in [
        ("    pub(crate)\tfn of(pid: i32) -> Self {", &["of"][..]),
        ("async\tfn made<T: Send>(", &["made"]),
        ("pub\tstruct Held(BTreeSet<String>);", &["Held"]),
        ("struct Several;", &["Several"]),
        ("type Looked<'r> = (&'r Record, Became);", &["Looked"]),
        ("fn\tor_remove(made: &Place) {}", &["or_remove"]),
        ("pub(super)\tenum Other {", &["Other"]),
        ("fn of_pid(pid: i32) {}", &[]),
        ("fn find(of: fn(i32), at: usize) {}", &[]),
        ("struct HeldDevices {", &[]),
        ("    /// The struct\tHeld has it.", &[]),
        ("let found = Found { device };", &[]),
    ] {
        assert_eq!(refused_names(line), names, "{line}");
    }
}

/// The names that a line gives to functions and types and must not.
fn refused_names(line: &str) -> Vec<&str> {
    let words: Vec<&str> = line.split_whitespace().collect();
    if words.first().is_some_and(|word| word.starts_with("//")) {
        return Vec::new();
    }
    let mut names = Vec::new();
    for pair in words.windows(2) {
        let list = match pair[0] {
            "fn" => FUNCTIONS,
            "struct" | "enum" | "union" | "trait" | "type" => TYPES,
            _ => continue,
        };
        let end = pair[1].find(|c: char| !c.is_alphanumeric() && c != '_');
        let name = &pair[1][..end.unwrap_or(pair[1].len())];
        if list.split_whitespace().any(|refused| refused == name) {
            names.push(name);
        }
    }
    names
}

/// All files of the workspace in Rust, but what cargo has built.
pub(super) fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let (path, name) = (entry.path(), entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            let is_source = name != "target" && !name.to_string_lossy().starts_with('.');
            found.extend(is_source.then(|| rust_files(&path)).into_iter().flatten());
        } else if path.extension() == Some("rs".as_ref()) {
            found.push(path);
        }
    }
    found
}
