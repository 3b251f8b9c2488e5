//! `without-syscalls ENOSYS|EPERM NAME[,NAME...] COMMAND [ARGUMENT...]` runs a command in which the
//! named system calls fail, as on an older kernel (`ENOSYS`) or under the seccomp profile of an
//! engine (`EPERM`).

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use harness::exit;
use harness::surroundings::become_command;
use nix::errno::Errno;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

const USAGE: &str = "usage: without-syscalls ENOSYS|EPERM NAME[,NAME...] COMMAND [ARGUMENT...]";

/// The system calls that can be made to fail, with their numbers. They are those that the hook
/// prefers and for which it has a fallback or an error message.
const HIDEABLE: [(&str, i64); 11] = [
    ("bpf", libc::SYS_bpf),
    ("close_range", libc::SYS_close_range),
    ("fsconfig", libc::SYS_fsconfig),
    ("fsmount", libc::SYS_fsmount),
    ("fsopen", libc::SYS_fsopen),
    ("mount", libc::SYS_mount),
    ("mount_setattr", libc::SYS_mount_setattr),
    ("move_mount", libc::SYS_move_mount),
    ("open_tree", libc::SYS_open_tree),
    ("openat2", libc::SYS_openat2),
    ("pidfd_open", libc::SYS_pidfd_open),
];

fn main() -> ExitCode {
    exit::with("without-syscalls", run())
}

fn run() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let errno = errno(&text(arguments.next())?)?;
    let calls = calls(&text(arguments.next())?)?;
    hide(&calls, errno)?;
    become_command(arguments, USAGE)
}

fn text(argument: Option<OsString>) -> Result<String> {
    argument
        .and_then(|argument| argument.into_string().ok())
        .context(USAGE)
}

fn errno(name: &str) -> Result<Errno> {
    match name {
        "ENOSYS" => Ok(Errno::ENOSYS),
        "EPERM" => Ok(Errno::EPERM),
        other => bail!("{other} is neither ENOSYS nor EPERM; {USAGE}"),
    }
}

fn calls(names: &str) -> Result<Vec<i64>> {
    names
        .split(',')
        .map(|name| {
            let known = HIDEABLE.iter().find(|(hideable, _)| *hideable == name);
            known.map(|(_, number)| *number).with_context(|| {
                let names: Vec<_> = HIDEABLE.iter().map(|(hideable, _)| *hideable).collect();
                format!("cannot hide {name}; one of: {}", names.join(" "))
            })
        })
        .collect()
}

fn hide(calls: &[i64], errno: Errno) -> Result<()> {
    let rules = calls.iter().map(|call| (*call, Vec::new())).collect();
    let refuse = SeccompAction::Errno(errno as u32);
    let architecture = std::env::consts::ARCH
        .try_into()
        .context("no seccomp filter for this machine")?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, architecture)?;
    let program: BpfProgram = filter.try_into()?;
    apply_filter(&program).context("cannot set the seccomp filter")
}
