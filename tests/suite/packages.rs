//! The packages that `scripts/install-test-packages` is called with.

use std::collections::BTreeSet;
use std::fs;

use harness::binaries;

/// The script fails on a package that it does not know, and so does the target that
/// names one.
#[test]
fn each_that_is_named_is_known() {
    let tree = binaries::source_tree();
    let script = fs::read_to_string(tree.join("scripts/install-test-packages")).unwrap();
    let known: BTreeSet<&str> = script
        .lines()
        .filter_map(|line| line.strip_prefix("    ")?.split_once(") "))
        .flat_map(|(names, _)| names.split(" | "))
        .collect();
    for file in ["Makefile", ".github/workflows/release.yml"] {
        let text = fs::read_to_string(tree.join(file)).unwrap();
        let calls = text
            .lines()
            .filter_map(|line| line.split_once("scripts/install-test-packages "));
        for name in calls.flat_map(|(_, names)| names.split_whitespace()) {
            assert!(known.contains(name), "{file} names {name}: {known:?}");
        }
    }
    assert!(known.contains("e2fsprogs"), "{known:?}");
}

/// What `make test` installs as root.
#[test]
fn the_readme_names_those_of_the_tests() {
    let tree = binaries::source_tree();
    let [makefile, readme] =
        ["Makefile", "README.md"].map(|file| fs::read_to_string(tree.join(file)).unwrap());
    let (_, target) = makefile.split_once("\ntest: ").unwrap();
    let line = target.lines().nth(1).unwrap();
    let (_, names) = line.split_once("install-test-packages ").unwrap();
    let (_, told) = readme.split_once("`make test` runs every test").unwrap();
    let told: BTreeSet<&str> = told.split([' ', ',', '\n']).collect();
    for name in names.split_whitespace() {
        assert!(told.contains(name), "{name} is not in README.md");
    }
}
