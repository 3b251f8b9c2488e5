//! Generates shell completions. They complete the names of engines, of the shipped classes, and
//! of the host's devices and containers. For these the scripts call `boathook list` and `boathook
//! containers`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use clap::Command;
use clap_complete::Shell;

/// The scripts that complete names of devices and containers. They are added to the script that clap generates
/// for `boathook`.
const BASH: &str = include_str!("../completions/devices.bash");
const ZSH: &str = include_str!("../completions/devices.zsh");
const FISH: &str = include_str!("../completions/devices.fish");

/// Writes the completions of a program for each shell below `share`.
pub(crate) fn write(command: &Command, share: &Path) -> Result<()> {
    let name = command.get_name();
    for (shell, dir, file) in [
        // bash-completion loads a file by the program's bare name.
        (Shell::Bash, "bash-completion/completions", name.to_owned()),
        (Shell::Zsh, "zsh/site-functions", format!("_{name}")),
        (
            Shell::Fish,
            "fish/vendor_completions.d",
            format!("{name}.fish"),
        ),
    ] {
        let dir = share.join(dir);
        make(&dir)?;
        let file = dir.join(file);
        fs::write(&file, script(shell, command)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

fn script(shell: Shell, command: &Command) -> Result<String> {
    let name = command.get_name();
    let mut command = add_completed_values(command)?;
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    let mut script = String::from_utf8(script)?;
    if shell == Shell::Fish {
        // clap generates no completions of arguments for fish.
        script += &classes_in_fish(name, &command, &[]);
    }
    if name == "boathook" {
        script = add_device_completion(shell, &script)?;
    }
    Ok(script)
}

/// Changes a completion script so that the arguments of `attach` and `detach` are completed
/// with the names of devices, and containers with their names.
fn add_device_completion(shell: Shell, script: &str) -> Result<String> {
    let (found, changed) = match shell {
        Shell::Bash => {
            let (own, complete) = (
                "complete -F _boathook ",
                "complete -F _boathook_and_devices ",
            );
            let at = script.find("\nif [[ \"${BASH_VERSINFO[0]}\" -eq 4");
            let changed = at.map(|at| {
                let (functions, rest) = script.split_at(at);
                format!("{functions}{BASH}{}", rest.replace(own, complete))
            });
            (script.matches(own).count() == 2, changed)
        }
        Shell::Zsh => {
            let (mut found, mut containers, mut lines) = (0, 0, String::new());
            for line in script.split_inclusive('\n') {
                match line.strip_suffix(":_default' \\\n") {
                    Some(spec) if spec.starts_with("'*::devices -- ") => {
                        found += 1;
                        lines += &format!("{spec}:_boathook_devices' \\\n");
                    }
                    Some(spec) if names_a_container(spec) => {
                        containers += 1;
                        lines += &format!("{spec}:_boathook_containers' \\\n");
                    }
                    _ => lines += line,
                }
            }
            let last = "if [ \"$funcstack[1]\" =";
            (
                found == 2 && containers == 7,
                Some(lines.replacen(last, &format!("{ZSH}{last}"), 1)),
            )
        }
        _ => (true, Some(format!("{script}{FISH}"))),
    };
    ensure!(
        found && changed.is_some(),
        "{shell}: clap_complete writes another script than was expected"
    );
    Ok(changed.unwrap_or_default())
}

/// Returns whether an argument in a script for zsh is a container: that of `attach`, `detach`,
/// `refresh` and `doctor`, or of the option `--container`.
fn names_a_container(spec: &str) -> bool {
    let is_argument =
        spec.starts_with("':name -- The container") || spec.starts_with("'::name -- A container");
    is_argument || spec.contains("--container=[")
}

/// Returns lines for fish that complete the arguments that are names of classes.
fn classes_in_fish(program: &str, command: &Command, path: &[&str]) -> String {
    let function = format!("__fish_{}_using_subcommand", program.replace('-', "_"));
    let condition = match path {
        [command] => format!("{function} {command}"),
        [command, sub] => format!("{function} {command}; and __fish_seen_subcommand_from {sub}"),
        _ => String::new(),
    };
    let mut lines = String::new();
    for argument in command.get_positionals() {
        let values = argument.get_possible_values();
        let names: Vec<_> = values.iter().map(|value| value.get_name()).collect();
        if !names.is_empty() {
            let names = names.join(" ");
            lines += &format!("complete -c {program} -n \"{condition}\" -f -a \"{names}\"\n");
        }
    }
    for command in command.get_subcommands() {
        let path = [path, &[command.get_name()]].concat();
        lines += &classes_in_fish(program, command, &path);
    }
    lines
}

/// Returns the command for completions: without hidden commands and options, and with the names
/// of engines and shipped classes as possible values.
fn add_completed_values(command: &Command) -> Result<Command> {
    let mut completed = Command::new(leak_name(command.get_name()))
        .about(command.get_about().cloned().unwrap_or_default())
        .version(command.get_version().map_or("", leak_name));
    for argument in command.get_arguments().filter(|one| !one.is_hide_set()) {
        let names = match argument.get_value_names() {
            Some([name]) if name == "CLASS" => class_names()?,
            Some([name]) if name == "NAME[,NAME]" => engine_names(),
            _ => Vec::new(),
        };
        completed = completed.arg(if names.is_empty() {
            argument.clone()
        } else {
            argument.clone().value_parser(names)
        });
    }
    for subcommand in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        completed = completed.subcommand(add_completed_values(subcommand)?);
    }
    Ok(completed)
}

fn class_names() -> Result<Vec<&'static str>> {
    let classes = Path::new("device-class/classes");
    let entries = fs::read_dir(classes).context("cannot read the classes")?;
    let mut names = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        names.extend(name.strip_suffix(".toml").map(leak_name));
    }
    names.sort_unstable();
    Ok(names)
}

fn engine_names() -> Vec<&'static str> {
    let engines = runtime_config::Engine::ALL.map(|engine| engine.name());
    ["auto", "none"].into_iter().chain(engines).collect()
}

/// Leaks a name, because clap needs names with the lifetime `'static`.
fn leak_name(name: &str) -> &'static str {
    name.to_owned().leak()
}

pub(crate) fn make(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))
}
