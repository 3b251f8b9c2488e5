//! Runs the commands of `boathook-init`. Each command makes a plan, prints or executes it, and then
//! prints what the operator must do next.

mod engines;
mod execution;
mod install;
mod pod_status;
mod uninstall;
mod upgrade;

use std::path::Path;

use anyhow::{Context, Result, ensure};
use daemon::command_line;
use host_files::release_lock::NodeReleaseLock;
use initcontainer::cli::{Cli, Command};
use initcontainer::host::Host;
use initcontainer::lock::InstallerLock;
use initcontainer::status::Status;
use nix::sys::signal::{SigSet, Signal};

use crate::output::Output;

/// Runs the command that the command line names. Returns `false`, for exit code 1, if this command
/// is `status` and something is missing.
pub(crate) fn run(cli: Cli) -> Result<bool> {
    let _release_lock = take_release_lock(&cli)?;
    let host = Host::open(cli.host_root)?;
    let new_output = |dry_run| Output::new(cli.json, cli.verbose, dry_run);
    match cli.command {
        Command::Install(args) => {
            let mut output = new_output(args.dry_run);
            install::install(&host, &args, &mut output)?;
            output.print_report();
        }
        Command::Upgrade(args) => {
            let mut output = new_output(args.dry_run);
            upgrade::upgrade(&host, &args, &mut output)?;
            output.print_report();
        }
        Command::Uninstall(args) => {
            let mut output = new_output(args.dry_run);
            uninstall::uninstall(&host, &args, &mut output)?;
            output.print_report();
        }
        Command::Status => return print_status(&host, cli.json),
        Command::Wait(_) => wait_for_signal()?,
    }
    Ok(true)
}

/// Takes the lock that lets only one cluster release (`--release`) use a node. A cluster release is
/// one installation of the chart or the manifests. Two of them on a node would replace each other's
/// programs. The installer holds the lock until it ends, and then the release's plugin takes it. If
/// the plugin is a service of the host, the command `wait` holds the lock in the pod.
fn take_release_lock(cli: &Cli) -> Result<Option<NodeReleaseLock>> {
    if let Command::Wait(args) = &cli.command {
        let release = args.release.as_ref();
        let lock =
            release.map(|release| NodeReleaseLock::acquire_to_serve(&cli.host_root, release));
        return Ok(lock.transpose()?);
    }
    let release = match &cli.command {
        Command::Install(args) if !args.dry_run => args.release.as_ref(),
        Command::Uninstall(args) if !args.dry_run => args.release.as_ref(),
        _ => None,
    };
    let lock = release.map(|release| NodeReleaseLock::acquire_to_install(&cli.host_root, release));
    Ok(lock.transpose()?)
}

/// Waits for SIGTERM, SIGINT or SIGQUIT. This process may have pid 1 in a container, and the kernel
/// discards signals that pid 1 does not handle. The kubelet could then only kill the process after
/// the pod's grace period.
fn wait_for_signal() -> Result<()> {
    let signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGQUIT]);
    signals.thread_block().context("cannot block signals")?;
    signals.wait().context("cannot wait for a signal")?;
    Ok(())
}

/// Releases the installer lock. If this fails, only a note is reported, because the command itself
/// has succeeded.
fn release_installer_lock(lock: InstallerLock, output: &mut Output) {
    if let Err(error) = lock.release() {
        output.report_note(&format!(
            "{error}; the next run of boathook-init removes it"
        ));
    }
}

fn print_status(host: &Host, as_json: bool) -> Result<bool> {
    let status = Status::read(host)?;
    if as_json {
        command_line::print_json(&status)?;
    } else {
        command_line::print_lines(&status.to_string())?;
    }
    Ok(status.is_complete())
}

/// Returns an error unless the current user is root or owns the host's root directory. Without this
/// check, each step would fail with its own message.
fn check_user(host: &Host) -> Result<()> {
    let user = nix::unistd::geteuid();
    let owner = host.stat(Path::new("/")).map(|stat| stat.st_uid);
    ensure!(
        user.is_root() || owner == Some(user.as_raw()),
        "must be run as root, such as with sudo"
    );
    Ok(())
}
