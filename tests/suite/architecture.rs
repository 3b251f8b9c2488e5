//! The arrows between crates are those of ARCHITECTURE.md, and within a crate no arrow
//! points back. Functions and types have names that say what they do and are. Texts for people
//! decide nothing.

mod folders;
mod guides;
mod names;
mod texts;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use harness::binaries;
use toml::Table;

/// By name: what it uses.
type Arrows = BTreeMap<String, BTreeSet<String>>;

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn manifest(directory: &Path) -> Table {
    read(&directory.join("Cargo.toml")).parse().unwrap()
}

/// The crates of the workspace, by their folders. Those in `tests` are not shipped.
fn crates() -> Vec<String> {
    let workspace = manifest(binaries::source_tree());
    let members = workspace["workspace"]["members"].as_array().unwrap();
    let members = members.iter().map(|member| member.as_str().unwrap());
    let shipped = members.filter(|member| !member.starts_with("tests"));
    shipped.map(str::to_owned).collect()
}

/// ARCHITECTURE.md writes them as `a, b ◀ c, d ◀ e`: c and d depend on a and b, e on c and d.
#[test]
fn crates_depend_on_each_other_as_architecture_says() {
    let tree = binaries::source_tree();
    let text = read(&tree.join("ARCHITECTURE.md"));
    let (_, section) = text.split_once("\n## Crates\n").unwrap();
    let block = section.split("```").nth(1).unwrap();
    let mut written = Arrows::new();
    for line in block.lines() {
        let lists = line.split('◀').map(|list| list.split(',').map(str::trim));
        let lists: Vec<Vec<&str>> = lists.map(Iterator::collect).collect();
        for pair in lists.windows(2) {
            for user in &pair[1] {
                let used = pair[0].iter().map(|name| (*name).to_owned());
                written.entry((*user).to_owned()).or_default().extend(used);
            }
        }
    }
    let crates = crates();
    let mut real = Arrows::new();
    for name in &crates {
        let manifest = manifest(&tree.join(name));
        let used = manifest
            .get("dependencies")
            .and_then(|used| used.as_table());
        let used = used.into_iter().flat_map(Table::keys);
        let used: BTreeSet<String> = used.filter(|one| crates.contains(one)).cloned().collect();
        if !used.is_empty() {
            real.insert(name.clone(), used);
        }
    }
    assert_eq!(
        written, real,
        "by crate: what ARCHITECTURE.md says, and what is so"
    );
}
