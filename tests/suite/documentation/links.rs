//! The pages lead somewhere: `docs/SUMMARY.md`, by which `make site` makes the site, has each page
//! once, and each link its file and heading.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::binaries;

use super::pages;

/// The longest cell of a table in characters, without the targets of links. A longer one is hard to
/// read, and does not fit a terminal.
const LONGEST_CELL: usize = 200;

#[test]
fn the_table_of_contents_has_each_page_once() {
    let docs = binaries::source_tree().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let mut listed: Vec<String> = links(&summary).map(str::to_owned).collect();
    listed.sort();
    let files = fs::read_dir(&docs).unwrap();
    let names = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut present: Vec<String> = names
        .filter(|name| name.ends_with(".md") && name != "SUMMARY.md")
        .collect();
    present.push("../README.md".to_owned());
    present.sort();
    assert_eq!(listed, present);
}

/// The script that builds the site rewrites the links of the pages before mdBook reads them. Each
/// rewritten link leads to a page or picture of the site, or to a file of the repository on GitHub.
#[test]
fn each_link_of_the_site_has_its_file() {
    const BLOB: &str = "https://github.com/boathook/boathook/blob/main/";
    let tree = binaries::source_tree();
    let made = tempfile::tempdir().unwrap();
    let mut script = Command::new(tree.join("scripts/build-site"));
    let output = script.arg("--sources").arg(made.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let source = made.path().join("src");
    let mut broken = Vec::new();
    let mut counts = [0, 0];
    for entry in fs::read_dir(&source).unwrap() {
        let page = entry.unwrap().path();
        if page.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let text = fs::read_to_string(&page).unwrap();
        for link in links(&text) {
            let target = link.split('#').next().unwrap();
            let (kind, file) = match target.strip_prefix(BLOB) {
                Some(path) => (0, tree.join(path)),
                None if target.contains("://") => continue,
                None if target.is_empty() => (1, page.clone()),
                None => (1, source.join(target)),
            };
            counts[kind] += 1;
            let is_of_site = kind == 0 || file.starts_with(&source) && !target.contains("..");
            if !file.exists() || !is_of_site {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(counts.iter().all(|count| *count > 20), "{counts:?}");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn each_link_has_its_file_and_heading() {
    let mut anchors = HashMap::new();
    let mut broken = Vec::new();
    let mut count = 0;
    for page in documents() {
        let text = fs::read_to_string(&page).unwrap();
        for link in links(&text).filter(|link| !link.contains("://")) {
            count += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let file = match file {
                "" => page.clone(),
                file => page.parent().unwrap().join(file),
            };
            let is_there = match anchor {
                "" => file.exists(),
                anchor => anchors
                    .entry(file.clone())
                    .or_insert_with(|| find_anchors(&file))
                    .contains(anchor),
            };
            if !is_there {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(count > 150, "{count}");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Who wants to change something starts at the files that these documents name.
#[test]
fn each_file_that_a_document_for_developers_names_exists() {
    let tree = binaries::source_tree();
    let mut count = 0;
    let mut missing = Vec::new();
    for document in ["CONTRIBUTING.md", "ARCHITECTURE.md"] {
        let text = fs::read_to_string(tree.join(document)).unwrap();
        for path in text.split('`').filter(|span| is_path_of_tree(tree, span)) {
            count += 1;
            if !tree.join(path).exists() {
                missing.push(format!("{document}: {path}"));
            }
        }
    }
    assert!(count > 40, "{count}");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// Whether a text names a file below a folder of the tree. A part in capitals, such as NAME, stands
/// for others, and what is in `target` is made.
fn is_path_of_tree(tree: &Path, text: &str) -> bool {
    let is_placeholder = |part: &str| part.chars().all(|c| c.is_ascii_uppercase());
    let mut parts = text.split('/');
    let first = parts.next().unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    text.contains('/')
        && text.chars().all(is_plain)
        && !first.is_empty()
        && !first.starts_with('.')
        && first != "target"
        && tree.join(first).is_dir()
        && !parts.any(|part| {
            part == "target"
                || !part.is_empty() && is_placeholder(part.split('.').next().unwrap_or_default())
        })
}

#[test]
fn no_cell_of_a_table_is_long() {
    let mut long = Vec::new();
    for page in pages() {
        let name = page.file_name().unwrap().to_str().unwrap();
        let text = fs::read_to_string(&page).unwrap();
        for row in text.lines().filter(|line| line.starts_with('|')) {
            let row = visible_text(&row.replace("\\|", ""));
            let cells = row.split('|').map(str::trim);
            let cells = cells.filter(|cell| cell.chars().count() > LONGEST_CELL);
            long.extend(cells.map(|cell| format!("{name}: {cell}")));
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

/// A reader must see whether a value is unknown or whether a platform needs nothing.
#[test]
fn each_cell_of_the_platforms_has_a_text() {
    let page = fs::read_to_string(binaries::source_tree().join("docs/platforms.md")).unwrap();
    let rows = page
        .lines()
        .skip_while(|line| !line.starts_with("| platform"));
    let rows: Vec<&str> = rows.take_while(|line| line.starts_with('|')).collect();
    assert!(rows.len() > 25, "{} rows", rows.len());
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 5, "{row}");
        assert!(cells.iter().all(|cell| !cell.is_empty()), "{row}");
    }
}

/// Returns a row as a reader sees it: without marks of code and targets of links.
fn visible_text(row: &str) -> String {
    let mut parts = row.split("](");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text += part.split_once(')').map_or("", |(_, rest)| rest);
    }
    text.replace('`', "")
}

#[test]
fn cells_are_measured_as_they_are_read() {
    assert_eq!(visible_text("| [a](b/c.md#d) `e` |"), "| [a e |");
}

#[test]
fn headings_become_anchors_as_on_the_site() {
    for (heading, anchor) in [
        ("What happens when …", "what-happens-when-"),
        ("What `version = 1` promises", "what-version--1-promises"),
        ("NVIDIA's stack: legacy", "nvidias-stack-legacy"),
    ] {
        assert_eq!(anchor_of_heading(heading), anchor);
    }
}

/// The pages for users, and the documents for developers that they lead to.
fn documents() -> Vec<PathBuf> {
    let tree = binaries::source_tree();
    let mut documents = pages();
    documents
        .extend(["ARCHITECTURE.md", "CHANGELOG.md", "SECURITY.md"].map(|name| tree.join(name)));
    documents
}

/// Returns the targets of the links of a page.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let ends = text.split("](").skip(1);
    ends.map(|rest| rest.split(')').next().unwrap())
}

fn find_anchors(page: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(page).unwrap_or_default();
    let mut is_code = false;
    let mut anchors = BTreeSet::new();
    for line in text.lines() {
        is_code ^= line.trim_start().starts_with("```");
        if let Some(heading) = line.strip_prefix('#').filter(|_| !is_code) {
            anchors.insert(anchor_of_heading(heading.trim_start_matches('#').trim()));
        }
    }
    anchors
}

/// Returns the anchor of a heading by the rule of GitHub, which is also mdBook's: small letters,
/// hyphens in place of blanks, and no other signs.
fn anchor_of_heading(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept
        .chars()
        .filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}
