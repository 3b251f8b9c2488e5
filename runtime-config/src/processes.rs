//! The processes of the host, as its /proc shows them.

use std::path::{Path, PathBuf};

use crate::host::HostRoot;

/// More processes than any host has.
const MAX_PROCESSES: usize = 1 << 22;

#[derive(Debug, Clone)]
pub struct Process {
    /// Its process id.
    pub pid: u32,
    pub uid: u32,
    /// The program's name, of which the kernel keeps 15 bytes.
    pub name: String,
    /// The command line.
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
        let mut arguments = self.arguments.iter().skip(1);
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

    /// The directory above the one that the process works in, whatever mount
    /// namespace that is in; `None`: it is gone, or this process may not look.
    pub fn above_working_dir(&self, host: &HostRoot) -> Option<HostRoot> {
        let link = host.reach(&dir(self.pid).join("cwd"))?;
        HostRoot::open(link.through_handle().join("..")).ok()
    }
}

/// Every process that can be seen; none where the host's /proc is not there.
pub fn processes(host: &HostRoot) -> Vec<Process> {
    let names = host.list(Path::new("/proc")).unwrap_or_default();
    let pids = names.iter().filter_map(|name| name.to_str()?.parse().ok());
    pids.take(MAX_PROCESSES)
        .filter_map(|pid| process(host, pid))
        .collect()
}

fn dir(pid: u32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
}

/// `None`: it has ended.
fn process(host: &HostRoot, pid: u32) -> Option<Process> {
    let dir = dir(pid);
    let name = host.read(&dir.join("comm")).ok()??;
    let line = host.read(&dir.join("cmdline")).ok()??;
    Some(Process {
        pid,
        uid: host.stat(&dir)?.st_uid,
        name: name.trim_end().to_owned(),
        arguments: line.split_terminator('\0').map(str::to_owned).collect(),
    })
}
