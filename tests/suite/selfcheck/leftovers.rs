//! `scripts/leftovers`, which `make test` runs around all tests.

use std::fs;
use std::path::Path;
use std::process::Command;

use harness::binaries;
use harness::captured::Captured;
use harness::scratch;

fn leftovers(arguments: &[&str]) -> Captured {
    leftovers_where("all", arguments)
}

fn leftovers_where(require: &str, arguments: &[&str]) -> Captured {
    let mut command = Command::new(binaries::source_tree().join("scripts/leftovers"));
    command.args(arguments).env("LEFTOVERS_PATIENCE", "0");
    command.env(skip::REQUIRE, require);
    Captured::run(&mut command).unwrap()
}

#[test]
fn files_and_processes_that_stay_are_listed() {
    let directory = scratch::directory("leftovers").unwrap();
    let before = directory.path().join("before").display().to_string();
    let mark = format!("selfcheck-{}", std::process::id());
    leftovers(&["record", &before]).success().unwrap();

    let file = Path::new("/var/tmp").join(format!("boathook-{mark}"));
    fs::write(&file, "").unwrap();
    let mut sleep = Command::new("sleep");
    let mut process = sleep
        .arg("60")
        .env("LEFTOVERS_MARK", &mark)
        .spawn()
        .unwrap();
    // The program is there once the process has it.
    let exe = format!("/proc/{}/exe", process.id());
    while !fs::read_link(&exe).is_ok_and(|program| program.ends_with("sleep")) {
        std::thread::yield_now();
    }
    let found = leftovers(&["compare", &before, &mark]);
    let warned = leftovers_where("", &["compare", &before, &mark]);
    process.kill().unwrap();
    process.wait().unwrap();
    fs::remove_file(&file).unwrap();

    assert_eq!(found.status.code(), Some(1), "{found:?}");
    assert!(warned.status.success() && warned.stderr.contains(&mark));
    for line in [
        format!("    file {}\n", file.display()),
        format!("    process {} (", process.id()),
    ] {
        assert!(found.stderr.contains(&line), "{line}: {}", found.stderr);
    }
    // Other tests come and go; these two are gone.
    let found = leftovers(&["compare", &before, &mark]);
    assert!(!found.stderr.contains(&mark), "{}", found.stderr);
    let process = format!("process {} (", process.id());
    assert!(!found.stderr.contains(&process), "{}", found.stderr);
}
