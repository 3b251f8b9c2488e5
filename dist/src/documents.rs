//! Generates manual pages and shell completions from the command lines of the programs.

use std::path::Path;

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};

use crate::completions::{self, create_dir};

/// Writes the manual pages and the shell completions below `dir/share`. Packages install them below
/// `/usr/share`.
pub(crate) fn write_manuals_and_completions(dir: &Path) -> Result<()> {
    let share = dir.join("share");
    for command in build_command_lines() {
        write_manual_pages(&command, &share.join("man/man1"))?;
        completions::write_completions(&command, &share)?;
    }
    Ok(())
}

/// Returns clap's descriptions of the command lines, for the programs that have manual pages.
fn build_command_lines() -> [Command; 3] {
    [
        boathook::command_line(),
        initcontainer::cli::Cli::command(),
        plugin::cli::Cli::command(),
    ]
}

/// Writes a manual page for a program, and one page for each command of the program.
fn write_manual_pages(command: &Command, dir: &Path) -> Result<()> {
    create_dir(dir)?;
    // clap adds the command `help`, which needs no page.
    let command = command.clone().disable_help_subcommand(true);
    clap_mangen::generate_to(command, dir)
        .with_context(|| format!("cannot write manual pages to {}", dir.display()))
}
