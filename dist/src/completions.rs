//! Generates the scripts by which shells complete command lines. They complete options, and the names
//! of engines, shipped classes, devices and containers. To find devices and containers, the scripts
//! call `boathook list` and `boathook containers`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use clap::Command;
use clap_complete::Shell;

/// The parts of scripts that complete names of devices and containers, for each shell. They are added
/// to the script that clap generates for `boathook`.
const BASH: &str = include_str!("../completions/devices.bash");
const ZSH: &str = include_str!("../completions/devices.zsh");
const FISH: &str = include_str!("../completions/devices.fish");

/// Writes the completions of a program for each shell below `share`.
pub(crate) fn write(command: &Command, share: &Path) -> Result<()> {
    let name = command.get_name();
    for (shell, dir, file) in [
        // bash-completion finds the file for a program by the program's name without an extension.
        (Shell::Bash, "bash-completion/completions", name.to_owned()),
        (Shell::Zsh, "zsh/site-functions", format!("_{name}")),
        (
            Shell::Fish,
            "fish/vendor_completions.d",
            format!("{name}.fish"),
        ),
    ] {
        let dir = share.join(dir);
        create_dir(&dir)?;
        let file = dir.join(file);
        fs::write(&file, generate_script(shell, command)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

fn generate_script(shell: Shell, command: &Command) -> Result<String> {
    let name = command.get_name();
    let mut command = add_completed_values(command)?;
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    let mut script = String::from_utf8(script)?;
    if shell == Shell::Fish {
        // For fish, clap generates completions of options only, and not of arguments.
        script += &complete_classes_in_fish(name, &command, &[]);
    }
    if name == "boathook" {
        script = add_device_completion(shell, &script)?;
    }
    Ok(script)
}

/// Changes a script that clap has generated, so that it completes the arguments of `attach` and
/// `detach` by the names of devices, and arguments for containers by their names.
///
/// # Errors
/// Returns an error if the script does not have the lines that have to be changed, because another
/// version of clap generated it.
fn add_device_completion(shell: Shell, script: &str) -> Result<String> {
    let (is_expected, changed) = match shell {
        Shell::Bash => {
            let (generated, replacement) = (
                "complete -F _boathook ",
                "complete -F _boathook_and_devices ",
            );
            let end_of_functions = script.find("\nif [[ \"${BASH_VERSINFO[0]}\" -eq 4");
            let changed = end_of_functions.map(|end| {
                let (functions, rest) = script.split_at(end);
                format!("{functions}{BASH}{}", rest.replace(generated, replacement))
            });
            (script.matches(generated).count() == 2, changed)
        }
        Shell::Zsh => {
            let (mut devices, mut containers, mut lines) = (0, 0, String::new());
            for line in script.split_inclusive('\n') {
                match line.strip_suffix(":_default' \\\n") {
                    Some(spec) if spec.starts_with("'*::devices -- ") => {
                        devices += 1;
                        lines += &format!("{spec}:_boathook_devices' \\\n");
                    }
                    Some(spec) if names_a_container(spec) => {
                        containers += 1;
                        lines += &format!("{spec}:_boathook_containers' \\\n");
                    }
                    _ => lines += line,
                }
            }
            let end_of_functions = "if [ \"$funcstack[1]\" =";
            let changed = lines.replacen(end_of_functions, &format!("{ZSH}{end_of_functions}"), 1);
            (devices == 2 && containers == 7, Some(changed))
        }
        _ => (true, Some(format!("{script}{FISH}"))),
    };
    ensure!(
        is_expected && changed.is_some(),
        "{shell}: clap_complete writes another script than was expected"
    );
    Ok(changed.unwrap_or_default())
}

/// Returns whether a line of a script for zsh describes an argument that is the name of a container:
/// the argument of `attach`, `detach`, `refresh` or `doctor`, or that of the option `--container`.
fn names_a_container(spec: &str) -> bool {
    let is_argument =
        spec.starts_with("':name -- The container") || spec.starts_with("'::name -- A container");
    is_argument || spec.contains("--container=[")
}

/// Returns the lines of a script for fish that complete arguments which are the names of classes.
/// `path` are the names of the command and of the commands above it.
fn complete_classes_in_fish(program: &str, command: &Command, path: &[&str]) -> String {
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
        lines += &complete_classes_in_fish(program, command, &path);
    }
    lines
}

/// Returns a copy of the command from which scripts are generated. It lacks hidden commands and
/// options, and has the names of engines and shipped classes as possible values.
fn add_completed_values(command: &Command) -> Result<Command> {
    let mut completed = Command::new(leak_name(command.get_name()))
        .about(command.get_about().cloned().unwrap_or_default())
        .version(command.get_version().map_or("", leak_name));
    for argument in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
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
    for subcommand in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
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

/// Returns a name with the lifetime `'static`, which clap needs, by never freeing its memory.
fn leak_name(name: &str) -> &'static str {
    name.to_owned().leak()
}

pub(crate) fn create_dir(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))
}
