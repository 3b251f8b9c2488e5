//! Manual pages and shell completions, from the programs' own command lines.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_complete::Shell;

/// Writes them below `dir/share`, where a package has them below `/usr/share`.
pub(crate) fn write(dir: &Path) -> Result<()> {
    let share = dir.join("share");
    for command in programs() {
        pages(&command, &share.join("man/man1"))?;
        completions(&command, &share)?;
    }
    Ok(())
}

fn programs() -> [Command; 3] {
    [
        hook::command_line(),
        initcontainer::cli::Cli::command(),
        plugin::cli::Cli::command(),
    ]
}

/// A page for the program and one for each of its commands.
fn pages(command: &Command, dir: &Path) -> Result<()> {
    make(dir)?;
    // clap's own `help` has no page.
    let command = command.clone().disable_help_subcommand(true);
    clap_mangen::generate_to(command, dir)
        .with_context(|| format!("cannot write manual pages to {}", dir.display()))
}

fn completions(command: &Command, share: &Path) -> Result<()> {
    for (shell, dir) in [
        (Shell::Bash, "bash-completion/completions"),
        (Shell::Zsh, "zsh/site-functions"),
        (Shell::Fish, "fish/vendor_completions.d"),
    ] {
        let dir = share.join(dir);
        make(&dir)?;
        let name = command.get_name().to_owned();
        let mut command = offered(command)?;
        let written = clap_complete::generate_to(shell, &mut command, &name, &dir)
            .with_context(|| format!("cannot write completions to {}", dir.display()))?;
        if shell == Shell::Bash {
            // bash-completion loads a file by the program's bare name.
            fs::rename(&written, dir.join(&name))?;
        }
    }
    Ok(())
}

/// The command as a shell is to complete it: without what is hidden, and with the names of
/// engines and of the classes that are shipped.
fn offered(command: &Command) -> Result<Command> {
    let mut offered = Command::new(lasting(command.get_name()))
        .about(command.get_about().cloned().unwrap_or_default())
        .version(command.get_version().map_or("", lasting));
    for argument in command.get_arguments().filter(|one| !one.is_hide_set()) {
        let names = match argument.get_value_names() {
            Some([name]) if name == "CLASS" => class_names()?,
            Some([name]) if name == "NAME[,NAME]" => engine_names(),
            _ => Vec::new(),
        };
        offered = offered.arg(match names.is_empty() {
            true => argument.clone(),
            false => argument.clone().value_parser(names),
        });
    }
    for subcommand in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        offered = offered.subcommand(self::offered(subcommand)?);
    }
    Ok(offered)
}

fn class_names() -> Result<Vec<&'static str>> {
    let classes = Path::new("device-class/classes");
    let entries = fs::read_dir(classes).context("cannot read the classes")?;
    let mut names = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        names.extend(name.strip_suffix(".toml").map(lasting));
    }
    names.sort_unstable();
    Ok(names)
}

fn engine_names() -> Vec<&'static str> {
    let engines = runtime_config::Engine::ALL.map(|engine| engine.name());
    ["auto", "none"].into_iter().chain(engines).collect()
}

/// clap borrows names for as long as the program runs.
fn lasting(name: &str) -> &'static str {
    name.to_owned().leak()
}

fn make(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))
}
