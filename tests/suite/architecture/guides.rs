//! The names of the code in the guides for developers exist.

use std::path::Path;

use harness::binaries;

use super::{crates, read};

/// Splits a text at its code spans. The spans are the entries with odd numbers.
fn split_at_code(text: &str) -> Vec<&str> {
    text.split('`').collect()
}

/// Returns whether the code spans contain an identifier of Rust, perhaps with its module.
fn is_name(code: &str) -> bool {
    let last = code.rsplit("::").next().unwrap();
    let is_identifier = |name: &str| name.chars().all(|c| c.is_alphanumeric() || c == '_');
    !last.is_empty() && code.split("::").all(is_identifier)
}

/// CONTRIBUTING.md names code as "NAME in FILE", or with a comma before "in".
#[test]
fn the_names_in_contributing_are_in_their_files() {
    let tree = binaries::source_tree();
    let text = read(&tree.join("CONTRIBUTING.md"));
    let parts = split_at_code(&text);
    let mut checked = 0;
    for window in parts.windows(3).skip(1).step_by(2) {
        let [name, between, file] = window else {
            unreachable!()
        };
        let between = between.trim().trim_start_matches(',').trim();
        if between != "in" || !file.ends_with(".rs") || !is_name(name) {
            continue;
        }
        let code = read(&tree.join(file));
        let last = name.rsplit("::").next().unwrap();
        assert!(
            code.contains(last),
            "CONTRIBUTING.md: {name} is not in {file}"
        );
        checked += 1;
    }
    assert!(checked >= 5, "{checked}");
}

/// The steps of the hook name their functions in parentheses.
#[test]
fn the_functions_in_architecture_exist() {
    let tree = binaries::source_tree();
    let text = read(&tree.join("ARCHITECTURE.md"));
    let (_, rest) = text.split_once("## What the hook does, in order").unwrap();
    let (steps, _) = rest.split_once("A failure at any point").unwrap();
    let code = all_code(tree);
    let mut functions = Vec::new();
    for part in split_at_code(steps).into_iter().skip(1).step_by(2) {
        if is_name(part) && part.contains('_') {
            functions.push(part.rsplit("::").next().unwrap());
        }
    }
    assert!(functions.len() >= 10, "{functions:?}");
    for function in functions {
        let is_there = code
            .iter()
            .any(|text| text.contains(&format!("fn {function}(")));
        let is_generic = code
            .iter()
            .any(|text| text.contains(&format!("fn {function}<")));
        assert!(
            is_there || is_generic,
            "ARCHITECTURE.md: no function {function}"
        );
    }
}

/// Returns the texts of all source files of the shipped crates.
fn all_code(tree: &Path) -> Vec<String> {
    let mut directories: Vec<_> = crates()
        .iter()
        .map(|name| tree.join(name).join("src"))
        .collect();
    let mut texts = Vec::new();
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                texts.push(read(&path));
            }
        }
    }
    texts
}
