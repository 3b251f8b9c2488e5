//! The help and the exit codes of every program.

use std::process::Command;

use harness::binaries;
use harness::captured::Captured;

use super::code;

/// The programs that people call.
const PROGRAMS: [&str; 6] = [
    "boathook",
    "boathook-dra",
    "boathook-init",
    "boathook-plugin",
    "boathook-scheduler",
    "boathook-webhook",
];

fn run(program: &str, arguments: &str) -> Captured {
    let mut command = Command::new(binaries::program(program).unwrap());
    // No cluster.
    command.args(arguments.split_whitespace());
    Captured::run(command.env("KUBECONFIG", "/nowhere")).unwrap()
}

/// The lines of the help between a heading and the next empty line.
fn section(help: &str, heading: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != heading).skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
}

#[test]
fn every_program_has_examples_that_it_understands() {
    for program in PROGRAMS {
        let help = run(program, "--help").success().unwrap().stdout;
        let examples = section(&help, "Examples:");
        assert!(examples.len() > 2, "{program}: {help}");
        for example in examples {
            // The text that follows is the explanation, or the shell's.
            let line = example.trim().split("  ").next().unwrap_or_default();
            let line = line.split(" >").next().unwrap_or_default();
            let (called, arguments) = line.split_once(' ').unwrap_or((line, ""));
            assert_eq!(called, program, "{example}");
            // Help is printed only if everything before it was understood.
            let ran = run(program, &format!("{arguments} --help"));
            let code = ran.status.code();
            assert_eq!(code, Some(code::SUCCESS), "{example}: {ran:?}");
        }
    }
}

#[test]
fn every_program_ends_with_the_codes_that_its_help_lists() {
    for wrong in [
        "boathook class record /dev/null/x",
        "boathook-init install --engine=none --source=/nowhere",
        "boathook-dra device-class npu --config=/nowhere",
        "boathook-plugin list --config=/nowhere",
        "boathook-scheduler run --config=/nowhere",
        "boathook-webhook run --listen=127.0.0.1:0 --http=127.0.0.1:0",
    ] {
        let (program, wrong) = wrong.split_once(' ').unwrap();
        let help = run(program, "--help").stdout;
        let codes = section(&help, "Exit codes:");
        for (code, arguments) in [
            (code::SUCCESS, "--version"),
            (code::FAILURE, wrong),
            (code::USAGE, "--colour"),
        ] {
            let ran = run(program, arguments);
            let found = ran.status.code();
            assert_eq!(found, Some(code), "{program} {arguments}: {ran:?}");
            let start = format!("  {code}  ");
            let listed = codes.iter().any(|line| line.starts_with(&start));
            assert!(listed, "{program}, {code}: {help}");
        }
    }
}

/// The example is worth more than the parser's "invalid socket address syntax".
#[test]
fn a_wrong_address_gets_an_example() {
    for program in PROGRAMS.into_iter().skip(3) {
        let ran = run(program, "run --http=:9911");
        assert_eq!(ran.status.code(), Some(code::USAGE), "{program}");
        let example = "such as 127.0.0.1:9911";
        assert!(ran.stderr.contains(example), "{program}: {}", ran.stderr);
    }
}
