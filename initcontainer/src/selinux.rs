//! Gives installed files the types that the SELinux policy of the host has for them. A new file has
//! the type of its directory, and services may not execute that of most directories.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use initcontainer::host::Host;
use initcontainer::step::Step;

use crate::output::Output;
use crate::restart::enter_root;

/// The file that exists where SELinux is enabled (selinux(8)).
const ENABLED: &str = "/sys/fs/selinux/enforce";
/// The directory below which policies have the type [`PROGRAM`] for directories that are called `bin`.
const LABELLED: &str = "/opt";
/// The type of programs that services may execute.
const PROGRAM: &str = "bin_t";
/// The directories of the host's programs.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Labels the files of an installation of `version`. A failure is only reported, because everything
/// is installed.
pub(crate) fn label(host: &Host, version: &str, steps: &[Step], output: &mut Output) -> Result<()> {
    let has_programs = host.is_dir(Path::new("/usr/bin"));
    if steps.is_empty() || !has_programs || !host.exists(Path::new(ENABLED)) {
        return Ok(());
    }
    enter_root(host)?;
    let directories = host.directories();
    let mut restore = Command::new("restorecon");
    restore.args(["-R", "-i"]);
    restore.args([&directories.programs, &directories.configuration]);
    let mut commands = vec![restore];
    if !directories.programs.starts_with(LABELLED) {
        let mut change = Command::new("chcon");
        change.args(["-R", "-t", PROGRAM]);
        change.arg(directories.programs.join(version).join("bin"));
        commands.push(change);
    }
    for mut command in commands {
        if let Err(problem) = run(command.env("PATH", PATH)) {
            let shown = format!("{command:?}").replace('"', "");
            let shown = shown
                .trim_start_matches(&format!("PATH={PATH} "))
                .to_owned();
            output.report_note(&format!(
                "SELinux: `{shown}` failed: {problem}; run it, or services may not execute the programs"
            ));
        }
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<(), String> {
    let ended = command.output().map_err(|error| error.to_string())?;
    if ended.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&ended.stderr);
    let line = message.lines().next().unwrap_or_default();
    Err(format!("{} ({line})", ended.status))
}
