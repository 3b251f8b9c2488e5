//! Skipped tests: reported where the test runner cannot swallow it, counted, and
//! refused where every test must run.
//!
//! A crate of its own, without dependencies, so that the tests of every other
//! crate can use it.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

/// Names the file that every skip is appended to. `make test` sets it, and prints
/// the file at the end.
pub const REPORT: &str = "BOATHOOK_TESTS_SKIPPED";

/// With the value `all`, a skip that is not listed in `tests/skip/allowed` fails.
pub const REQUIRE: &str = "BOATHOOK_TESTS_REQUIRE";

/// The skips that never fail.
const ALLOWED: &str = include_str!("../allowed");

/// Reports that `test`, or a part of it, does not run. The caller returns after it.
///
/// # Panics
///
/// Where every test must run and this one is not listed as an exception, and
/// where the report cannot be written.
pub fn report(test: &str, reason: &str) {
    let skip = format!("{test}: {}", reason.trim_end().replace('\n', " "));
    // Past the capture of the test runner, and in one piece, because other tests
    // print at the same time.
    let _ = io::stderr().write_all(format!("skipped: {skip}\n").as_bytes());
    if let Some(file) = std::env::var_os(REPORT) {
        append(Path::new(&file), &skip)
            .unwrap_or_else(|error| panic!("cannot write {}: {error}", file.display()));
    }
    let all = std::env::var(REQUIRE).is_ok_and(|value| value == "all");
    assert!(
        !all || is_allowed(&skip, ALLOWED),
        "{REQUIRE}=all, and this test is not listed in tests/skip/allowed: {skip}"
    );
}

fn append(file: &Path, skip: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    file.write_all(format!("{skip}\n").as_bytes())
}

fn is_allowed(skip: &str, allowed: &str) -> bool {
    allowed
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .any(|beginning| skip.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{REPORT, REQUIRE, is_allowed, report};

    #[test]
    fn only_listed_skips_are_allowed() {
        let list = "# a comment\n\nyouki: \nother (cgroup v1): needs\n";
        assert!(is_allowed("youki: no program", list));
        assert!(is_allowed("other (cgroup v1): needs root", list));
        assert!(!is_allowed("other (cgroup v2): needs root", list));
        assert!(!is_allowed("a comment", list));
        assert!(!is_allowed("anything", "\n# nothing\n"));
    }

    /// Run again by the tests below, in a process with variables of its own.
    #[test]
    #[ignore = "run by the tests of this file"]
    fn skipping() {
        report("a test", "a reason\non two lines\n");
    }

    fn skip_in_a_process(require: &str) -> (bool, String) {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("skipped");
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "tests::skipping"])
            .env(REPORT, &file)
            .env(REQUIRE, require)
            .output()
            .unwrap()
            .status;
        (status.success(), std::fs::read_to_string(file).unwrap())
    }

    #[test]
    fn a_skip_is_recorded_on_one_line() {
        let (succeeded, recorded) = skip_in_a_process("");
        assert!(succeeded);
        assert_eq!(recorded, "a test: a reason on two lines\n");
    }

    #[test]
    fn a_skip_fails_where_every_test_has_to_run() {
        let (succeeded, recorded) = skip_in_a_process("all");
        assert!(!succeeded);
        assert_eq!(recorded, "a test: a reason on two lines\n");
    }
}
