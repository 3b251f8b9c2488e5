//! Outputs that end early, and outputs that cannot be written.

use std::fs::File;
use std::process::{Command, Output, Stdio};

use harness::binaries;
use harness::demo_host::HostDirectory;

use super::code;

/// Commands that print, with `CONFIG` and `HOST` for what they read, and
/// their exit codes.
const COMMANDS: [(&str, i32); 9] = [
    ("boathook --config=CONFIG list", code::SUCCESS),
    ("boathook --config=CONFIG list --json", code::SUCCESS),
    ("boathook --config=CONFIG check", code::SUCCESS),
    ("boathook --config=CONFIG cdi list --json", code::SUCCESS),
    ("boathook --config=CONFIG class schema", code::SUCCESS),
    ("boathook-plugin list --config=CONFIG", code::SUCCESS),
    ("boathook-plugin list --json --config=CONFIG", code::SUCCESS),
    // Nothing is installed there.
    ("boathook-init status --host-root=HOST", code::FAILURE),
    ("boathook-webhook crds", code::SUCCESS),
];

/// Commands that print to stderr too, of a path that the host lacks.
const WITH_WARNING: [(&str, i32); 2] = [
    (
        "boathook --config=CONFIG list --json /dev/null",
        code::SUCCESS,
    ),
    (
        "boathook --config=CONFIG class new /dev/null0",
        code::SUCCESS,
    ),
];

fn run(host: &HostDirectory, line: &str, out: impl Into<Stdio>, err: impl Into<Stdio>) -> Output {
    let line = line.replace("CONFIG", host.config_file().to_str().unwrap());
    let line = line.replace("HOST", host.path().to_str().unwrap());
    let mut words = line.split(' ');
    let mut command = Command::new(binaries::program(words.next().unwrap()).unwrap());
    let child = command.args(words).stdout(out).stderr(err).spawn();
    child.unwrap().wait_with_output().unwrap()
}

fn without_a_reader() -> std::io::PipeWriter {
    let (read, write) = std::io::pipe().unwrap();
    drop(read);
    write
}

#[test]
fn a_reader_that_has_gone_away_is_no_failure() {
    let host = HostDirectory::new().unwrap();
    for (line, code) in COMMANDS.into_iter().chain(WITH_WARNING) {
        let ran = run(&host, line, without_a_reader(), Stdio::piped());
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(code), "{line}: {said}");
        assert!(!said.contains("Broken pipe"), "{line}: {said}");
        let ran = run(&host, line, without_a_reader(), without_a_reader());
        assert_eq!(ran.status.code(), Some(code), "{line}");
    }
}

#[test]
fn an_output_that_cannot_be_written_is_a_failure() {
    let host = HostDirectory::new().unwrap();
    for (line, _) in COMMANDS {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let ran = run(&host, line, full, Stdio::piped());
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(code::FAILURE), "{line}: {said}");
        let (program, _) = line.split_once(' ').unwrap();
        let expected =
            format!("{program}: cannot write the output: No space left on device (os error 28)\n");
        assert_eq!(said, expected, "{line}");
    }
}
