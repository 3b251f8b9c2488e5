//! The commands in README.md and docs: `make` and kubectl find what they name, and `run`
//! runs Boathook's own; those of README.md that install a release are run by
//! `release::roots`, all as they are written.

mod links;
mod pictures;
mod run;
mod words;

use std::fs;
use std::path::PathBuf;

use harness::binaries;

/// Our programs that people call.
const OURS: [&str; 5] = [
    "boathook",
    "boathook-dra",
    "boathook-init",
    "boathook-plugin",
    "boathook-scheduler",
];

/// The pages for users.
fn pages() -> Vec<PathBuf> {
    let tree = binaries::source_tree();
    let mut pages = vec![
        tree.join("README.md"),
        tree.join("CONTRIBUTING.md"),
        tree.join("deploy/README.md"),
    ];
    let docs = fs::read_dir(tree.join("docs")).unwrap();
    let docs = docs.map(|entry| entry.unwrap().path());
    pages.extend(docs.filter(|path| path.extension().is_some_and(|ending| ending == "md")));
    assert!(pages.len() > 8);
    pages
}

/// The first block of commands below a heading.
pub(crate) fn block(page: &str, heading: &str) -> String {
    let text = fs::read_to_string(binaries::source_tree().join(page)).unwrap();
    let mut lines = text.lines().skip_while(|line| *line != heading);
    assert!(lines.next().is_some(), "{page} has no heading {heading}");
    let mut section = lines.take_while(|line| !line.starts_with("## "));
    assert!(
        section.any(|line| line == "```sh"),
        "{page}, {heading}: no commands"
    );
    section
        .take_while(|line| *line != "```")
        .map(|line| format!("{line}\n"))
        .collect()
}

/// The commands of a page: of blocks of a shell's input, and of a shell's session,
/// in which they follow a `$`.
fn commands(text: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut kind = None;
    let mut begun = String::new();
    for line in text.lines() {
        if let Some(fence) = line.trim_start().strip_prefix("```") {
            kind = kind.is_none().then_some(fence);
            continue;
        }
        let part = match kind {
            Some("sh") => line,
            Some("console") if !begun.is_empty() => line,
            Some("console") => line.strip_prefix("$ ").unwrap_or(""),
            _ => continue,
        };
        let part = part.split(" #").next().unwrap().trim();
        match part.strip_suffix('\\') {
            Some(more) => begun += more,
            None => commands.push(std::mem::take(&mut begun) + part),
        }
    }
    commands.retain(|command| !command.is_empty() && !command.starts_with('#'));
    commands
}

/// Our own commands in running text, without those that have placeholders.
fn mentioned(text: &str) -> Vec<String> {
    let spans = text.split('`').skip(1).step_by(2);
    let ours = |span: &&str| {
        let program = span.split(' ').next().unwrap();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=, ".contains(c);
        OURS.contains(&program) && span.contains(' ') && span.chars().all(plain)
    };
    spans.filter(ours).map(str::to_owned).collect()
}

#[test]
fn every_command_is_one_that_works() {
    let mut checked = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for command in commands(&text) {
            if let Err(problem) = check(&command) {
                panic!("{}: `{command}`: {problem}", page.display());
            }
            checked += 1;
        }
    }
    assert!(checked > 40, "{checked}");
}

/// The words that people search for.
#[test]
fn the_readme_has_the_words_of_those_who_search() {
    let readme = fs::read_to_string(binaries::source_tree().join("README.md")).unwrap();
    let screen: Vec<&str> = readme.lines().take(50).collect();
    let screen = screen.join("\n");
    for word in [
        "replugging",
        "unplug",
        "rootless",
        "hostUsers",
        "--device nvidia.com/gpu=all",
        "boathook attach",
        "boathook doctor",
        "make demo",
    ] {
        assert!(screen.contains(word), "{word}");
    }
}

/// People search for these, and each row has a command or a key.
#[test]
fn messages_of_engines_have_a_page_with_commands() {
    let page = binaries::source_tree().join("docs/engine-messages.md");
    let page = fs::read_to_string(page).unwrap();
    for text in [
        "could not select device driver",
        "unknown or invalid runtime name",
        "unresolvable CDI devices",
        "error executing hook",
        "failed to stat CDI host device",
        "error gathering device information",
        "no runtime for \"boathook\" is configured",
        "error while loading shared libraries",
    ] {
        let mut rows = page.lines().filter(|line| line.starts_with("| `"));
        let row = rows.find(|row| row.contains(text));
        let columns: Vec<&str> = row
            .unwrap_or_else(|| panic!("{text}"))
            .split(" | ")
            .collect();
        assert_eq!(columns.len(), 3, "{text}");
        assert!(columns[2].contains('`'), "{text}");
    }
}

#[test]
fn a_command_that_does_not_work_is_found() {
    for command in [
        "make everything",
        "kubectl apply -k deploy/overlays/nothing",
    ] {
        assert!(check(command).is_err(), "{command}");
    }
}

/// The targets and files that a command names.
fn check(command: &str) -> Result<(), String> {
    let words = command.split_whitespace();
    let words: Vec<&str> = words
        .skip_while(|word| *word == "sudo" || word.contains('='))
        .collect();
    let Some((program, arguments)) = words.split_first() else {
        return Ok(());
    };
    match program.rsplit('/').next().unwrap() {
        "make" => has_target(arguments),
        "kubectl" => names_manifests(arguments),
        _ => Ok(()),
    }
}

fn has_target(arguments: &[&str]) -> Result<(), String> {
    let makefile = fs::read_to_string(binaries::source_tree().join("Makefile")).unwrap();
    for target in arguments.iter().filter(|word| !word.contains('=')) {
        let rule = format!("{target}:");
        if !makefile.lines().any(|line| line.starts_with(&rule)) {
            return Err(format!("no target {target}"));
        }
    }
    Ok(())
}

fn names_manifests(arguments: &[&str]) -> Result<(), String> {
    let named = arguments
        .windows(2)
        .filter(|pair| ["-k", "-f"].contains(&pair[0]));
    // A file of the release, not of the source tree; or what another command prints.
    for pair in named.filter(|pair| !["install.yaml", "uninstall.yaml", "-"].contains(&pair[1])) {
        let tree = binaries::source_tree();
        let here = [tree.join(pair[1]), tree.join("deploy").join(pair[1])];
        if !here.iter().any(|path| path.exists()) {
            return Err(format!("{} is not there", pair[1]));
        }
    }
    Ok(())
}
