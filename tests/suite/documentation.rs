//! The commands in README.md and docs: Boathook's own are accepted by its programs, and
//! the files that the others name exist. `run` runs Boathook's own; those of README.md
//! that install a release are run by `release::roots`, all as they are written.

mod run;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::binaries;
use harness::captured::Captured;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Our programs that people call.
const OURS: [&str; 4] = [
    "boathook",
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
    pages.extend(docs.map(|entry| entry.unwrap().path()));
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
        for command in commands(&text).into_iter().chain(mentioned(&text)) {
            if let Err(problem) = check(&command) {
                panic!("{}: `{command}`: {problem}", page.display());
            }
            checked += 1;
        }
    }
    assert!(checked > 60, "{checked}");
}

#[test]
fn every_class_is_in_the_readme() {
    let tree = binaries::source_tree();
    let readme = fs::read_to_string(tree.join("README.md")).unwrap();
    let (_, table) = readme.split_once("## Supported hardware").unwrap();
    let (table, _) = table.split_once("\n## ").unwrap();
    let listed: BTreeSet<&str> = table.split([' ', ',', '|']).collect();
    for entry in fs::read_dir(tree.join("device-class/classes")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "toml") {
            let name = path.file_stem().unwrap().to_str().unwrap();
            assert!(listed.contains(name), "{name}");
        }
    }
}

#[test]
fn a_command_that_does_not_work_is_found() {
    for command in [
        "boathook-init install --restrat",
        "boathook lst",
        "make everything",
        "kubectl apply -k deploy/overlays/nothing",
        "docker run --runtime boathook -e FUSE_VISIBLE_DEVICE=all busybox",
        "docker run -e FUSE_VISIBLE_DEVICES=all busybox",
        "tar xzf boathook-0.0.1-linux-amd64.tar.gz",
        "cargo test -p boathook-test",
        "helm install boathook deploy/helm --set engin=crio",
        "frobnicate",
    ] {
        assert!(check(command).is_err(), "{command}");
    }
}

fn check(command: &str) -> Result<(), String> {
    let mut words: Vec<&str> = command.split_whitespace().collect();
    while words
        .first()
        .is_some_and(|word| *word == "sudo" || word.contains('='))
    {
        words.remove(0);
    }
    let Some((program, arguments)) = words.split_first() else {
        return Ok(());
    };
    match program.rsplit('/').next().unwrap() {
        name if OURS.contains(&name) => ours(name, arguments),
        "make" => has_target(arguments),
        "kubectl" => names_manifests(arguments),
        "docker" | "podman" => asks_for_devices(program, arguments),
        "tar" | "dpkg" | "rpm" | "ctr" => names_release(arguments),
        "helm" => sets_values(arguments),
        "cargo" => names_package(arguments),
        _ => Err("no rule checks this program".into()),
    }
}

/// The help is printed only if everything before it was understood.
fn ours(name: &str, arguments: &[&str]) -> Result<(), String> {
    let program = binaries::program(name).map_err(|e| e.to_string())?;
    let ran = Captured::run(Command::new(program).args(arguments).arg("--help"));
    match ran.and_then(Captured::success) {
        Ok(ran) if ran.stdout.contains("Usage:") => Ok(()),
        Ok(ran) => Err(ran.stdout),
        Err(error) => Err(error.to_string()),
    }
}

fn has_target(arguments: &[&str]) -> Result<(), String> {
    let makefile = fs::read_to_string(binaries::source_tree().join("Makefile")).unwrap();
    for target in arguments.iter().filter(|word| !word.contains('=')) {
        if !makefile
            .lines()
            .any(|line| line.starts_with(&format!("{target}:")))
        {
            return Err(format!("no target {target}"));
        }
    }
    Ok(())
}

fn names_manifests(arguments: &[&str]) -> Result<(), String> {
    for pair in arguments
        .windows(2)
        .filter(|pair| ["-k", "-f"].contains(&pair[0]))
    {
        let tree = binaries::source_tree();
        let here = [tree.join(pair[1]), tree.join("deploy").join(pair[1])];
        if !here.iter().any(|path| path.exists()) {
            return Err(format!("{} is not there", pair[1]));
        }
    }
    Ok(())
}

/// A container whose variable is of a class; with Docker also its runtime.
fn asks_for_devices(program: &str, arguments: &[&str]) -> Result<(), String> {
    if arguments.first() != Some(&"run") {
        return Ok(());
    }
    let has = |first: &str, second: &str| arguments.windows(2).any(|w| w == [first, second]);
    let named = arguments.windows(2).find(|pair| pair[0] == "--device");
    if let Some((kind, _)) = named.and_then(|pair| pair[1].split_once('=')) {
        let classes = fs::read_dir(binaries::source_tree().join("device-class/classes")).unwrap();
        let resource = format!("resource = \"{kind}\"");
        let mut texts = classes.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
        let is_known = texts.any(|text| text.contains(&resource));
        return is_known
            .then_some(())
            .ok_or(format!("no class has {resource}"));
    }
    if program == "docker" && !has("--runtime", "boathook") {
        return Err("without the runtime boathook".into());
    }
    let variable = arguments.windows(2).find(|pair| pair[0] == "-e");
    let variable = variable.and_then(|pair| pair[1].split('=').next());
    let variable = variable.ok_or("it asks for no device")?;
    let classes = fs::read_dir(binaries::source_tree().join("device-class/classes")).unwrap();
    let known = |path: PathBuf| {
        fs::read_to_string(path).is_ok_and(|text| text.contains(&format!("\"{variable}\"")))
    };
    let mut classes = classes.map(|entry| entry.unwrap().path());
    classes
        .any(known)
        .then_some(())
        .ok_or(format!("no class has {variable}"))
}

fn names_release(arguments: &[&str]) -> Result<(), String> {
    let made = |name: &str| {
        let archives = ["amd64", "arm64"].map(|a| format!("boathook-{VERSION}-linux-{a}.tar.gz"));
        let debs = ["amd64", "arm64"].map(|a| format!("boathook_{VERSION}_{a}.deb"));
        let rpms = ["x86_64", "aarch64"].map(|a| format!("boathook-{VERSION}-1.{a}.rpm"));
        let images = ["", "-cluster"].map(|image| format!("boathook{image}-{VERSION}-image.tar"));
        let all = [&archives[..], &debs, &rpms, &images].concat();
        all.iter().any(|one| one == name)
    };
    let is_file =
        |word: &&&str| word.starts_with("boathook") && Path::new(word).extension().is_some();
    match arguments.iter().find(|word| is_file(word) && !made(word)) {
        Some(other) => Err(format!("a release has no {other}")),
        None => Ok(()),
    }
}

fn sets_values(arguments: &[&str]) -> Result<(), String> {
    let text = fs::read_to_string(binaries::source_tree().join("deploy/helm/values.yaml"));
    let text = text.map_err(|e| e.to_string())?;
    for pair in arguments.windows(2).filter(|pair| pair[0] == "--set") {
        let key = pair[1].split('=').next().unwrap();
        // The last part of a key, on its line of any depth.
        let last = key.rsplit('.').next().unwrap();
        let is_known = |line: &str| {
            line.trim_start()
                .trim_start_matches("# ")
                .starts_with(&format!("{last}:"))
        };
        if !text.lines().any(is_known) {
            return Err(format!("values.yaml has no {key}"));
        }
    }
    Ok(())
}

fn names_package(arguments: &[&str]) -> Result<(), String> {
    let lock = fs::read_to_string(binaries::source_tree().join("Cargo.lock")).unwrap();
    for pair in arguments
        .windows(2)
        .filter(|pair| ["-p", "--package"].contains(&pair[0]))
    {
        if !lock.contains(&format!("name = \"{}\"", pair[1])) {
            return Err(format!("no package {}", pair[1]));
        }
    }
    Ok(())
}
