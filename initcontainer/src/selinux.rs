//! Gives installed files the SELinux types that the policy of the host defines for them. Without
//! this, a new file gets the type of its directory, and services may not execute files with the
//! types of most directories.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use initcontainer::host::Host;
use initcontainer::step::Step;
use runtime_config::Change;

use crate::output::Output;
use crate::restart::chroot_to_host;

/// The file that exists where SELinux is enabled (selinux(8)).
const SELINUX_ENFORCE_PATH: &str = "/sys/fs/selinux/enforce";
/// The directory below which SELinux policies give the type [`SELINUX_PROGRAM_TYPE`] to every
/// directory named `bin`.
const SELINUX_PROGRAMS_DIR: &str = "/opt";
/// The SELinux type of programs that services may execute.
const SELINUX_PROGRAM_TYPE: &str = "bin_t";
/// The SELinux type of the other files below [`SELINUX_PROGRAMS_DIR`], which services may read.
const SELINUX_DATA_TYPE: &str = "usr_t";
/// The value of PATH with which this module calls programs of the host.
const PROGRAM_SEARCH_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Sets the SELinux types of the files that an installation of `version` has made, also of those in
/// directories of engines, systemd and udev. If this fails, only a note is reported, because the
/// installation is complete.
pub(crate) fn set_selinux_types(
    host: &Host,
    version: &str,
    steps: &[Step],
    output: &mut Output,
) -> Result<()> {
    let are_programs_visible = host.is_dir(Path::new("/usr/bin"));
    if steps.is_empty() || !are_programs_visible || !host.exists(Path::new(SELINUX_ENFORCE_PATH)) {
        return Ok(());
    }
    chroot_to_host(host)?;
    let directories = host.directories();
    let own_dirs = [&directories.programs_dir, &directories.config_dir];
    let mut restorecon = Command::new("restorecon");
    restorecon.args(["-R", "-i"]).args(own_dirs);
    let mut commands = vec![restorecon];
    // A new file has the type of its directory, or a type that depends on the program that made it.
    // For some directories, such as that of udev's rules, policies define another type.
    let is_own = |path: &&Path| own_dirs.iter().any(|own_dir| path.starts_with(own_dir));
    let written_paths: Vec<&Path> = steps
        .iter()
        .filter(|step| {
            matches!(
                step,
                Step::Change(Change::MakeDir { .. } | Change::Write { .. })
            )
        })
        .map(Step::path)
        .filter(|path| !is_own(path))
        .collect();
    if !written_paths.is_empty() {
        let mut restorecon = Command::new("restorecon");
        restorecon.arg("-i").args(written_paths);
        commands.push(restorecon);
    }
    if !directories.programs_dir.starts_with(SELINUX_PROGRAMS_DIR) {
        let version_dir = directories.programs_dir.join(version);
        // Services find the programs through the link `current`, which they must be able to read.
        let mut link_chcon = Command::new("chcon");
        link_chcon.args(["-h", "-t", SELINUX_DATA_TYPE]);
        link_chcon.arg(&directories.programs_dir);
        link_chcon.arg(directories.current_link_path());
        let mut data_chcon = Command::new("chcon");
        data_chcon.args(["-R", "-h", "-t", SELINUX_DATA_TYPE]);
        data_chcon.arg(&version_dir);
        let mut program_chcon = Command::new("chcon");
        program_chcon.args(["-R", "-t", SELINUX_PROGRAM_TYPE]);
        program_chcon.arg(version_dir.join("bin"));
        commands.extend([link_chcon, data_chcon, program_chcon]);
    }
    for mut command in commands {
        if let Err(problem) = run_command(command.env("PATH", PROGRAM_SEARCH_PATH)) {
            let unquoted_command = format!("{command:?}").replace('"', "");
            let command_line = unquoted_command
                .trim_start_matches(&format!("PATH={PROGRAM_SEARCH_PATH} "))
                .to_owned();
            output.report_note(&format!(
                "SELinux: `{command_line}` failed: {problem}; run it, or services may not use these files"
            ));
        }
    }
    Ok(())
}

/// Runs a command. If the command fails, the error contains its exit status and the first line of
/// its stderr.
fn run_command(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    let line = message.lines().next().unwrap_or_default();
    Err(format!("{} ({line})", output.status))
}
