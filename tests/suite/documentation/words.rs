//! The words of the pages and of the programs: how many, and which readers did not understand.

use std::fs;
use std::path::Path;

use harness::binaries;
use memchr::memmem;

use super::pages;

/// The greatest number of words of README.md and docs, without what programs write.
/// Who adds a page shortens another one.
const MOST_WORDS: usize = 30_000;

/// The parts of pages that programs write, from the first line to the second one.
const GENERATED: [(&str, &str); 3] = [
    ("<!-- reference -->", "<!-- end of reference -->"),
    ("<!-- classes -->", "<!-- end of classes -->"),
    ("<!-- comparison -->", "<!-- end of comparison -->"),
];

/// Words that readers had to read twice, in pages, help or messages, each with its replacement.
const UNCLEAR: [(&str, &str); 19] = [
    ("Thin and plain", "with or without the hook"),
    ("Lower protection", "Security note"),
    ("there are no facts", "what the driver's program reports"),
    ("no facts of", "what the driver's program reports"),
    ("the container is in no pod", "outside Kubernetes"),
    ("outside Kubernetes it is enough", "the variable is enough"),
    ("only the image sets it", "an image that sets the variable"),
    (
        "that a class sets in a container",
        "which variables, by an example",
    ),
    ("for the driver's files without a device", "libraries only"),
    ("prints that of this tree", "makes it from a clone"),
    ("trees of files", "simulated hosts"),
    ("by hiding the calls", "two sentences"),
    (
        "classes that are not enabled",
        "not offered to pods by default",
    ),
    ("elsewhere nobody counts them", "who counts"),
    ("whose first process has another root", "which containers"),
    ("Nothing with `allow_env", "No device if"),
    ("which must not exist yet", "which of the two"),
    ("by the request itself", "by the rules of this host"),
    ("that the plan has", "that the container was to get"),
];

#[test]
fn the_pages_are_short_enough_to_be_read() {
    let tree = binaries::source_tree();
    let docs = pages().into_iter().filter(|page| {
        page.parent() == Some(&tree.join("docs")) || page.ends_with("README.md") && is_top(page)
    });
    let counts: Vec<(String, usize)> = docs
        .map(|page| {
            let text = fs::read_to_string(&page).unwrap();
            let name = page.file_name().unwrap().to_string_lossy().into_owned();
            (name, count_words(&text))
        })
        .collect();
    assert!(counts.len() > 25, "{counts:?}");
    let all: usize = counts.iter().map(|(_, count)| count).sum();
    assert!(all <= MOST_WORDS, "{all} words: {counts:?}");
}

fn is_top(page: &Path) -> bool {
    page.parent() == Some(binaries::source_tree())
}

/// Returns the number of words outside of generated parts. Signs alone, such as those between the
/// cells of a table, are no words.
fn count_words(text: &str) -> usize {
    let mut end = None;
    let mut count = 0;
    for line in text.lines() {
        match end {
            Some(last) if line == last => end = None,
            Some(_) => {}
            None => {
                let mut parts = GENERATED.iter();
                end = parts
                    .find(|(first, _)| *first == line)
                    .map(|(_, last)| *last);
                let words = line.split_whitespace().filter(|_| end.is_none());
                count += words
                    .filter(|word| word.contains(|c: char| c.is_alphanumeric()))
                    .count();
            }
        }
    }
    assert_eq!(end, None, "a generated part has no end");
    count
}

#[test]
fn words_are_counted_without_signs_and_generated_parts() {
    let page = "# One two\n| three | `four` |\n|---|---|\n<!-- classes -->\n| x |\n<!-- end of classes -->\n";
    assert_eq!(count_words(page), 4);
}

#[test]
fn nothing_is_said_in_words_that_readers_did_not_understand() {
    let notes = binaries::source_tree().join("deploy/helm/templates/NOTES.txt");
    let pages = pages().into_iter().chain([notes]).map(|page| {
        // A line break of a page is a blank.
        let text = fs::read_to_string(&page).unwrap().replace('\n', " ");
        (page.display().to_string(), text.into_bytes())
    });
    // A program has all of its help and its messages in its file.
    let programs = ["boathook", "boathook-init", "boathook-plugin"].map(|program| {
        let file = fs::read(binaries::program(program).unwrap()).unwrap();
        (program.to_owned(), file)
    });
    let mut found = Vec::new();
    for (name, text) in pages.chain(programs) {
        for (words, instead) in UNCLEAR {
            if memmem::find(&text, words.as_bytes()).is_some() {
                found.push(format!("{name}: `{words}`; say it so: {instead}"));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
