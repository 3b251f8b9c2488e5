//! Generates the scripts with which shells complete command lines. The scripts complete options,
//! and the names of engines, shipped classes, devices and containers. To find devices and
//! containers, they call `boathook list` and `boathook containers`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use clap::Command;
use clap_complete::Shell;

/// For each shell, the lines that complete the names of devices and containers. They are added to
/// the script that clap generates for `boathook`.
const BASH_DEVICE_COMPLETION: &str = include_str!("../completions/devices.bash");
const ZSH_DEVICE_COMPLETION: &str = include_str!("../completions/devices.zsh");
const FISH_DEVICE_COMPLETION: &str = include_str!("../completions/devices.fish");

/// Writes the completion scripts of a program, one for each shell, below the directory `share_dir`.
pub(crate) fn write_completions(command: &Command, share_dir: &Path) -> Result<()> {
    let name = command.get_name();
    for (shell, dir, file_name) in [
        // bash-completion finds the file for a program by the program's name without an extension.
        (Shell::Bash, "bash-completion/completions", name.to_owned()),
        (Shell::Zsh, "zsh/site-functions", format!("_{name}")),
        (
            Shell::Fish,
            "fish/vendor_completions.d",
            format!("{name}.fish"),
        ),
    ] {
        let dir = share_dir.join(dir);
        create_dir(&dir)?;
        let file = dir.join(file_name);
        fs::write(&file, generate_script(shell, command)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

fn generate_script(shell: Shell, command: &Command) -> Result<String> {
    let name = command.get_name();
    let mut command = copy_for_completion(command)?;
    let mut script_bytes = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script_bytes);
    let mut script = String::from_utf8(script_bytes)?;
    if shell == Shell::Fish {
        // For fish, clap generates completions only for options, not for arguments.
        script += &format_fish_class_completions(name, &command, &[]);
    }
    if name == "boathook" {
        script = add_device_completion(shell, &script)?;
    }
    Ok(script)
}

/// Changes a script that clap has generated, so that it also completes names. The arguments of
/// `attach` and `detach` are completed with the names of devices. Arguments that name a container
/// are completed with the names of containers.
///
/// # Errors
/// Returns an error if the script does not have the lines that must be changed, because another
/// version of clap generated the script.
fn add_device_completion(shell: Shell, script: &str) -> Result<String> {
    let (is_expected, changed_script) = match shell {
        Shell::Bash => {
            let (generated_command, replacement) = (
                "complete -F _boathook ",
                "complete -F _boathook_and_devices ",
            );
            let end_of_functions = script.find("\nif [[ \"${BASH_VERSINFO[0]}\" -eq 4");
            let changed_script = end_of_functions.map(|end| {
                let (functions, rest) = script.split_at(end);
                format!(
                    "{functions}{BASH_DEVICE_COMPLETION}{}",
                    rest.replace(generated_command, replacement)
                )
            });
            (
                script.matches(generated_command).count() == 2,
                changed_script,
            )
        }
        Shell::Zsh => {
            let (mut device_specs, mut container_specs, mut lines) = (0, 0, String::new());
            for line in script.split_inclusive('\n') {
                match line.strip_suffix(":_default' \\\n") {
                    Some(spec) if spec.starts_with("'*::devices -- ") => {
                        device_specs += 1;
                        lines += &format!("{spec}:_boathook_devices' \\\n");
                    }
                    Some(spec) if describes_container_argument(spec) => {
                        container_specs += 1;
                        lines += &format!("{spec}:_boathook_containers' \\\n");
                    }
                    _ => lines += line,
                }
            }
            let end_of_functions = "if [ \"$funcstack[1]\" =";
            let changed_script = lines.replacen(
                end_of_functions,
                &format!("{ZSH_DEVICE_COMPLETION}{end_of_functions}"),
                1,
            );
            (
                device_specs == 2 && container_specs == 7,
                Some(changed_script),
            )
        }
        _ => (true, Some(format!("{script}{FISH_DEVICE_COMPLETION}"))),
    };
    ensure!(
        is_expected && changed_script.is_some(),
        "{shell}: clap_complete writes another script than was expected"
    );
    Ok(changed_script.unwrap_or_default())
}

/// Returns whether a line of a zsh script describes an argument that is the name of a container.
/// That is the argument of `attach`, `detach`, `refresh` or `doctor`, or the value of the option
/// `--container`.
fn describes_container_argument(spec: &str) -> bool {
    let describes_container =
        spec.contains(" -- The container") || spec.contains(" -- A container");
    spec.starts_with("':") && describes_container || spec.contains("--container=[")
}

/// Returns the lines of a fish script that complete arguments with the names of classes.
/// `command_path` contains the names of the parent commands and of the command, in this order,
/// without the name of the program.
fn format_fish_class_completions(
    program: &str,
    command: &Command,
    command_path: &[&str],
) -> String {
    let function = format!("__fish_{}_using_subcommand", program.replace('-', "_"));
    let condition = match command_path {
        [name] => format!("{function} {name}"),
        [name, subcommand] => {
            format!("{function} {name}; and __fish_seen_subcommand_from {subcommand}")
        }
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
    for subcommand in command.get_subcommands() {
        let subcommand_path = [command_path, &[subcommand.get_name()]].concat();
        lines += &format_fish_class_completions(program, subcommand, &subcommand_path);
    }
    lines
}

/// Returns a copy of a command from which scripts are generated. The copy does not have hidden
/// commands and options. The names of engines and shipped classes are the possible values of its
/// arguments.
fn copy_for_completion(command: &Command) -> Result<Command> {
    let mut command_copy = Command::new(leak_name(command.get_name()))
        .about(command.get_about().cloned().unwrap_or_default())
        .version(command.get_version().map_or("", leak_name));
    for argument in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
        let names = match argument.get_value_names() {
            Some([name]) if name == "CLASS" => list_class_names()?,
            Some([name]) if name == "NAME[,NAME]" => list_engine_names(),
            _ => Vec::new(),
        };
        command_copy = command_copy.arg(if names.is_empty() {
            argument.clone()
        } else {
            argument.clone().value_parser(names)
        });
    }
    for subcommand in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        command_copy = command_copy.subcommand(copy_for_completion(subcommand)?);
    }
    Ok(command_copy)
}

fn list_class_names() -> Result<Vec<&'static str>> {
    let classes_dir = Path::new("device-class/classes");
    let entries = fs::read_dir(classes_dir).context("cannot read the classes")?;
    let mut names = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        names.extend(name.strip_suffix(".toml").map(leak_name));
    }
    names.sort_unstable();
    Ok(names)
}

fn list_engine_names() -> Vec<&'static str> {
    let engines = runtime_config::Engine::ALL.map(|engine| engine.name());
    ["auto", "none"].into_iter().chain(engines).collect()
}

/// Returns a copy of the name with the lifetime `'static`, which clap needs. The memory of the copy
/// is never freed.
fn leak_name(name: &str) -> &'static str {
    name.to_owned().leak()
}

pub(crate) fn create_dir(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))
}
