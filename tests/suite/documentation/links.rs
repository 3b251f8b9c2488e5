//! The pages lead somewhere: `docs/SUMMARY.md`, by which `make site` makes the site, has each page
//! once, and each link its file and heading.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use harness::binaries;

use super::pages;

/// The longest cell of a table in characters, without the targets of links. A longer one is hard to
/// read, and does not fit a terminal.
const LONGEST_CELL: usize = 200;

/// The sections that still have longer cells.
const LONG_CELLS: [(&str, &str); 3] = [
    ("administration.md", "## What happens when …"),
    ("day-two.md", "## A device got sick"),
    ("day-two.md", "## A node was replaced, or its hardware"),
];

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

#[test]
fn no_cell_of_a_table_is_long() {
    let mut long = Vec::new();
    for page in pages() {
        let name = page.file_name().unwrap().to_str().unwrap();
        let text = fs::read_to_string(&page).unwrap();
        for row in rows_to_check(name, &text) {
            let row = visible_text(&row.replace("\\|", ""));
            let cells = row.split('|').map(str::trim);
            let cells = cells.filter(|cell| cell.chars().count() > LONGEST_CELL);
            long.extend(cells.map(|cell| format!("{name}: {cell}")));
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

/// Returns the rows of all tables but those in a section of [`LONG_CELLS`].
fn rows_to_check<'a>(page: &str, text: &'a str) -> Vec<&'a str> {
    let mut is_exempt = false;
    let mut rows = Vec::new();
    for line in text.lines() {
        if line.starts_with("## ") {
            is_exempt = LONG_CELLS.contains(&(page, line));
        }
        if line.starts_with('|') && !is_exempt {
            rows.push(line);
        }
    }
    rows
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
    let page = "## One\n| a |\n## What happens when …\n| b |\n## Three\n| c |\n";
    assert_eq!(rows_to_check("administration.md", page), ["| a |", "| c |"]);
    assert_eq!(rows_to_check("other.md", page).len(), 3);
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
