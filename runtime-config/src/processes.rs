//! Finds the processes of a program in the host's /proc.
//!
//! Every user, and root in a container, can start a process with any name and any command line.
//! Therefore a process counts as one of a program only in two cases: root runs it outside of
//! containers, or its executable is the host's own file, which only root can change.

use std::io::Read;
use std::path::Path;

use nix::sys::stat::FileStat;

use crate::host::{HostRoot, Place};

/// The maximum number of processes that are examined: the kernel's limit for process ids on 64-bit
/// systems.
const MAX_PROCESSES: usize = 1 << 22;
/// The maximum number of bytes that are read of a file in /proc. A command line may have megabytes.
/// The rest of it is ignored.
const MAX_TEXT: u64 = 64 << 10;

/// A process of the host.
#[derive(Debug, Clone)]
pub struct Process {
    pub pid: u32,
    pub uid: u32,
    /// The file name of the executable. If the link `exe` cannot be read, only the first 15 bytes
    /// of the name are known, from `comm`.
    pub program: String,
    pub arguments: Vec<String>,
}

impl Process {
    /// Returns the first value of an option, given as `--name VALUE` or `--name=VALUE`.
    pub fn option(&self, names: &[&str]) -> Option<&str> {
        self.options(names).next()
    }

    /// Returns every value of an option that may be repeated. If the option has one letter, such
    /// as `-H`, an address may also follow without a blank (`-Hunix://…`).
    pub(crate) fn options(&self, names: &[&str]) -> impl Iterator<Item = &str> {
        option_values(self.arguments.get(1..).unwrap_or_default(), names)
    }

    /// Opens the parent of the process's working directory, in the mount namespace of that
    /// process. Returns `None` if the process has ended or the directory may not be opened.
    pub fn above_working_dir(&self, host: &HostRoot) -> Option<HostRoot> {
        let link = host.reach(&Path::new("/proc").join(self.pid.to_string()).join("cwd"))?;
        HostRoot::open(link.through_handle().join("..")).ok()
    }
}

/// Returns every value of an option in `arguments`, in the forms that [`Process::options`]
/// describes. `names` are the option's names.
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

/// Lists the processes whose program name `is_wanted` accepts. The list is empty if the host's
/// /proc is not visible.
pub fn find_processes(host: &HostRoot, is_wanted: impl Fn(&str) -> bool) -> Vec<Process> {
    let proc = Path::new("/proc");
    let (names, place) = (host.list(proc).unwrap_or_default(), host.reach(proc));
    let pids = names.iter().filter_map(|name| name.to_str()?.parse().ok());
    pids.take(MAX_PROCESSES)
        .filter_map(|pid| read_process(host, place.as_ref()?, pid, &is_wanted))
        .collect()
}

/// Reads one process. Returns `None` if the process has ended, its program is not wanted, or its
/// name cannot be trusted.
fn read_process(
    host: &HostRoot,
    proc: &Place,
    pid: u32,
    is_wanted: &impl Fn(&str) -> bool,
) -> Option<Process> {
    let exe = proc.child(pid.to_string()).ok()?.child("exe").ok()?;
    let status = read_text(&exe.sibling("status"))?;
    let ids = |key| {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        let ids = line.split_whitespace().map(|id| id.parse().ok());
        ids.collect::<Option<Vec<u32>>>()
    };
    let uids = ids("Uid:")?;
    // A process in a container has a second process id, in the container's pid namespace.
    let is_in_container = ids("NSpid:").is_some_and(|pids| pids.len() > 1);
    let program = if !is_in_container && uids.iter().all(|uid| *uid == 0) {
        name_of_file(&exe).or_else(|| Some(read_text(&exe.sibling("comm"))?.trim_end().to_owned()))
    } else {
        // The path is that in the process's mount namespace, where a user can mount another file
        // at a path of the host. Therefore the file itself is compared with the host's file.
        name_of_file(&exe).filter(|_| is_file_of_host(host, &exe))
    };
    let program = program.filter(|program| is_wanted(program))?;
    let line = read_text(&exe.sibling("cmdline"))?;
    Some(Process {
        pid,
        uid: *uids.first()?,
        program,
        arguments: line.split_terminator('\0').map(str::to_owned).collect(),
    })
}

/// The suffix that the kernel adds to the path of a removed executable. An upgrade removes the
/// executable of a running process.
const REMOVED: &str = " (deleted)";

/// Returns the file name of the executable. Returns `None` for a kernel thread, and if this
/// process may not read the link.
fn name_of_file(exe: &Place) -> Option<String> {
    let path = exe.read_link().ok()?;
    let name = path.file_name()?.to_str()?;
    Some(name.strip_suffix(REMOVED).unwrap_or(name).to_owned())
}

/// Returns whether the executable of a process is the host's file at the same path, and only
/// root can change that path. A removed executable of root counts as the host's file.
fn is_file_of_host(host: &HostRoot, exe: &Place) -> bool {
    let (Ok(path), Ok(executable)) = (exe.read_link(), exe.stat_target()) else {
        return false;
    };
    let Some(text) = path.to_str().filter(|_| executable.st_uid == 0) else {
        return false;
    };
    let path = Path::new(text.strip_suffix(REMOVED).unwrap_or(text));
    let is_executable =
        |file: FileStat| (file.st_dev, file.st_ino) == (executable.st_dev, executable.st_ino);
    host.check_private(path).is_ok()
        && (executable.st_nlink == 0 || host.stat(path).is_some_and(is_executable))
}

fn read_text(file: &Place) -> Option<String> {
    let mut bytes = Vec::new();
    let file = file.open_file().ok()?;
    file.take(MAX_TEXT).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
