//! `boathook`: the commands for administrators. The program uses [`main`], and [`command_line`]
//! describes its arguments.

#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests make their own files")
)]

mod cli;
mod command;
mod live;

pub use command::main;

/// Returns the command line of `boathook`. Manual pages and shell completions are generated from
/// it.
pub fn command_line() -> clap::Command {
    <cli::Cli as clap::CommandFactory>::command()
}
