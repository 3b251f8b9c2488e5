//! Finds the processes that run a certain program, in the host's /proc.
//!
//! Every user, and root in a container, can start a process with any name and any command line. So
//! a process counts only in two cases: root runs it outside of containers, or its executable is the
//! host's own file, which only root can change.

use std::io::Read;
use std::path::Path;

use nix::sys::stat::FileStat;

use crate::host::{HostEntry, HostRoot};

/// The maximum number of processes that are examined. It is the kernel's limit for process ids on
/// 64-bit systems.
const MAX_PROCESSES: usize = 1 << 22;
/// The maximum number of bytes that are read of a file in /proc. A command line may have megabytes,
/// and the rest of it is ignored.
const MAX_PROC_FILE_BYTES: u64 = 64 << 10;

/// A running process of the host, as /proc describes it.
#[derive(Debug, Clone)]
pub struct Process {
    pub pid: u32,
    pub uid: u32,
    /// The file name of the executable. If the link `exe` cannot be read, the name is taken from
    /// `comm`, which has only the first 15 bytes.
    pub program_name: String,
    pub arguments: Vec<String>,
}

impl Process {
    /// Returns the first value of an option on the command line (`--name VALUE` or `--name=VALUE`).
    /// `option_names` are the names of this option.
    pub fn get_option_value(&self, option_names: &[&str]) -> Option<&str> {
        self.get_option_values(option_names).next()
    }

    /// Returns every value of an option that may be repeated on the command line. If a name of the
    /// option has one letter, an address may follow it without a blank (`-Hunix://…`).
    pub(crate) fn get_option_values(&self, option_names: &[&str]) -> impl Iterator<Item = &str> {
        find_option_values(self.arguments.get(1..).unwrap_or_default(), option_names)
    }

    /// Opens the directory above the working directory of the process, in the mount namespace of
    /// the process. Returns `None` if the process has ended, or if this process may not open the
    /// directory.
    pub fn open_parent_of_working_dir(&self, host: &HostRoot) -> Option<HostRoot> {
        let link = host.find_entry(&Path::new("/proc").join(self.pid.to_string()).join("cwd"))?;
        HostRoot::open(link.proc_fd_path().join("..")).ok()
    }
}

/// Returns every value of an option in `arguments`, in the forms that
/// [`Process::get_option_values`] accepts. `option_names` are the names of this option.
pub(crate) fn find_option_values<'a>(
    arguments: &'a [String],
    option_names: &[&str],
) -> impl Iterator<Item = &'a str> {
    let mut arguments = arguments.iter();
    std::iter::from_fn(move || {
        while let Some(argument) = arguments.next() {
            for name in option_names {
                match argument.strip_prefix(name) {
                    Some("") => return arguments.next().map(String::as_str),
                    Some(suffix) if suffix.starts_with('=') => return Some(&suffix[1..]),
                    Some(suffix) if name.len() == 2 && suffix.contains("://") => {
                        return Some(suffix);
                    }
                    _ => {}
                }
            }
        }
        None
    })
}

/// Returns the processes whose program name `matches_name` accepts. The list is empty if this
/// process does not see the host's /proc.
pub fn find_processes(host: &HostRoot, matches_name: impl Fn(&str) -> bool) -> Vec<Process> {
    let proc = Path::new("/proc");
    let (names, proc_entry) = (host.list(proc).unwrap_or_default(), host.find_entry(proc));
    let pids = names.iter().filter_map(|name| name.to_str()?.parse().ok());
    pids.take(MAX_PROCESSES)
        .filter_map(|pid| read_process(host, proc_entry.as_ref()?, pid, &matches_name))
        .collect()
}

/// Reads one process. Returns `None` if the process has ended, if `matches_name` does not accept
/// the name of its program, or if the name cannot be trusted.
fn read_process(
    host: &HostRoot,
    proc: &HostEntry,
    pid: u32,
    matches_name: &impl Fn(&str) -> bool,
) -> Option<Process> {
    let exe = proc.child(pid.to_string()).ok()?.child("exe").ok()?;
    let status = read_text(&exe.sibling("status"))?;
    let parse_ids = |key| {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        let ids = line.split_whitespace().map(|id| id.parse().ok());
        ids.collect::<Option<Vec<u32>>>()
    };
    let uids = parse_ids("Uid:")?;
    // A process in a container has a second process id, in the container's pid namespace.
    let is_in_container = parse_ids("NSpid:").is_some_and(|pids| pids.len() > 1);
    let trusted_name = if !is_in_container && uids.iter().all(|uid| *uid == 0) {
        read_program_name(&exe)
            .or_else(|| Some(read_text(&exe.sibling("comm"))?.trim_end().to_owned()))
    } else {
        // The link `exe` has the path in the mount namespace of the process, where a user can mount
        // another file at a path of the host. So the inodes are compared as well.
        read_program_name(&exe).filter(|_| is_host_executable(host, &exe))
    };
    let program_name = trusted_name.filter(|name| matches_name(name))?;
    let command_line = read_text(&exe.sibling("cmdline"))?;
    Some(Process {
        pid,
        uid: *uids.first()?,
        program_name,
        arguments: command_line
            .split_terminator('\0')
            .map(str::to_owned)
            .collect(),
    })
}

/// The suffix that the kernel appends to the path of an executable that was removed. An upgrade
/// removes the executable of a running process.
const REMOVED_SUFFIX: &str = " (deleted)";

/// Returns the file name of the executable to which the link `exe` leads. Returns `None` for a
/// kernel thread, or if this process may not read the link.
fn read_program_name(exe: &HostEntry) -> Option<String> {
    let path = exe.read_link().ok()?;
    let name = path.file_name()?.to_str()?;
    Some(name.strip_suffix(REMOVED_SUFFIX).unwrap_or(name).to_owned())
}

/// Returns whether the executable of a process is the host's file at the same path, and only root
/// can change this file. An executable that belonged to root and was removed is accepted as well.
fn is_host_executable(host: &HostRoot, exe: &HostEntry) -> bool {
    let (Ok(path), Ok(executable_stat)) = (exe.read_link(), exe.stat_target()) else {
        return false;
    };
    let Some(path_text) = path.to_str().filter(|_| executable_stat.st_uid == 0) else {
        return false;
    };
    let path = Path::new(path_text.strip_suffix(REMOVED_SUFFIX).unwrap_or(path_text));
    let is_executable = |file: FileStat| {
        (file.st_dev, file.st_ino) == (executable_stat.st_dev, executable_stat.st_ino)
    };
    host.check_root_only_writable(path).is_ok()
        && (executable_stat.st_nlink == 0 || host.stat(path).is_some_and(is_executable))
}

fn read_text(file: &HostEntry) -> Option<String> {
    let mut bytes = Vec::new();
    let file = file.open_file().ok()?;
    file.take(MAX_PROC_FILE_BYTES)
        .read_to_end(&mut bytes)
        .ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
