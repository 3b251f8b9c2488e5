//! The processes of the host, as its /proc shows them.
//!
//! Every user, and a container's root, can start a process with any name and any command
//! line. So a process counts as a program only if it is root's and in no container, or
//! if it runs the file that root has put on the host under that name.

use std::io::Read;
use std::path::Path;

use nix::sys::stat::FileStat;

use crate::host::{HostRoot, Place};

/// More processes than any host has.
const MAX_PROCESSES: usize = 1 << 22;
/// Most bytes that are read of a file of /proc; a command line may have megabytes.
const MAX_TEXT: u64 = 64 << 10;

#[derive(Debug, Clone)]
pub struct Process {
    pub pid: u32,
    pub uid: u32,
    /// The name of its program; of one that may not be looked up, the first 15 bytes.
    pub program: String,
    pub arguments: Vec<String>,
}

impl Process {
    /// The value of an option, given as `--name VALUE` or `--name=VALUE`; the first one.
    pub fn option(&self, names: &[&str]) -> Option<&str> {
        self.options(names).next()
    }

    /// Every value of an option that may be repeated. Of a name of one letter, such as
    /// `-H`, the value may also follow without a blank if it is an address (`-Hunix://…`).
    pub(crate) fn options(&self, names: &[&str]) -> impl Iterator<Item = &str> {
        option_values(self.arguments.get(1..).unwrap_or_default(), names)
    }

    /// The directory above the one that the process works in, whatever mount
    /// namespace that is in; `None`: it is gone, or this process may not look.
    pub fn above_working_dir(&self, host: &HostRoot) -> Option<HostRoot> {
        let link = host.reach(&Path::new("/proc").join(self.pid.to_string()).join("cwd"))?;
        HostRoot::open(link.through_handle().join("..")).ok()
    }
}

/// Every value of an option in arguments, by the forms that [`Process::options`] accepts.
pub(crate) fn option_values<'a>(
    arguments: &'a [String],
    names: &[&str],
) -> impl Iterator<Item = &'a str> {
    let mut arguments = arguments.iter();
    std::iter::from_fn(move || {
        while let Some(argument) = arguments.next() {
            for name in names {
                match argument.strip_prefix(name) {
                    Some("") => return arguments.next().map(String::as_str),
                    Some(rest) if rest.starts_with('=') => return Some(&rest[1..]),
                    Some(rest) if name.len() == 2 && rest.contains("://") => return Some(rest),
                    _ => {}
                }
            }
        }
        None
    })
}

/// The processes that can be seen and whose program has a name that is wanted; none
/// where the host's /proc is not there.
pub fn processes(host: &HostRoot, is_wanted: impl Fn(&str) -> bool) -> Vec<Process> {
    let proc = Path::new("/proc");
    let (names, place) = (host.list(proc).unwrap_or_default(), host.reach(proc));
    let pids = names.iter().filter_map(|name| name.to_str()?.parse().ok());
    pids.take(MAX_PROCESSES)
        .filter_map(|pid| process(host, place.as_ref()?, pid, &is_wanted))
        .collect()
}

/// `None`: it has ended, is not wanted, or is not what it says that it is.
fn process(
    host: &HostRoot,
    proc: &Place,
    pid: u32,
    is_wanted: &impl Fn(&str) -> bool,
) -> Option<Process> {
    let exe = proc.child(pid.to_string()).ok()?.child("exe").ok()?;
    let status = text(&exe.sibling("status"))?;
    let ids = |key| {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        let ids = line.split_whitespace().map(|id| id.parse().ok());
        ids.collect::<Option<Vec<u32>>>()
    };
    let uids = ids("Uid:")?;
    // In a container it has an id there as well.
    let is_in_container = ids("NSpid:").is_some_and(|pids| pids.len() > 1);
    let program = if !is_in_container && uids.iter().all(|uid| *uid == 0) {
        name_of_file(&exe).or_else(|| Some(text(&exe.sibling("comm"))?.trim_end().to_owned()))
    } else {
        // Of a mount that only the process has, the path could be another file's.
        name_of_file(&exe).filter(|_| is_hosts_own(host, &exe))
    };
    let program = program.filter(|program| is_wanted(program))?;
    let line = text(&exe.sibling("cmdline"))?;
    Some(Process {
        pid,
        uid: *uids.first()?,
        program,
        arguments: line.split_terminator('\0').map(str::to_owned).collect(),
    })
}

/// What the kernel adds to the path of a file that was removed, as by an upgrade.
const REMOVED: &str = " (deleted)";

/// `None`: it is a kernel thread, or this process may not look.
fn name_of_file(exe: &Place) -> Option<String> {
    let path = exe.read_link().ok()?;
    let name = path.file_name()?.to_str()?;
    Some(name.strip_suffix(REMOVED).unwrap_or(name).to_owned())
}

/// Whether the file that runs is the one at its path on the host, which root alone can
/// change; or was, before it was removed.
fn is_hosts_own(host: &HostRoot, exe: &Place) -> bool {
    let (Ok(path), Ok(runs)) = (exe.read_link(), exe.stat_target()) else {
        return false;
    };
    let Some(text) = path.to_str().filter(|_| runs.st_uid == 0) else {
        return false;
    };
    let path = Path::new(text.strip_suffix(REMOVED).unwrap_or(text));
    let is_there = |found: FileStat| (found.st_dev, found.st_ino) == (runs.st_dev, runs.st_ino);
    host.check_private(path).is_ok()
        && (runs.st_nlink == 0 || host.stat(path).is_some_and(is_there))
}

fn text(file: &Place) -> Option<String> {
    let mut bytes = Vec::new();
    let file = file.open_file().ok()?;
    file.take(MAX_TEXT).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
