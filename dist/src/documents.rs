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
        let mut command = command.clone();
        let written = clap_complete::generate_to(shell, &mut command, &name, &dir)
            .with_context(|| format!("cannot write completions to {}", dir.display()))?;
        if shell == Shell::Bash {
            // bash-completion loads a file by the program's bare name.
            fs::rename(&written, dir.join(&name))?;
        }
    }
    Ok(())
}

fn make(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))
}
