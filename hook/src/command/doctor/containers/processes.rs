//! Processes: which cgroup they are in, and those that watch over containers.

use std::fs;
use std::path::{Path, PathBuf};

use super::entries;

/// More than any file of /proc that is read here has.
const MAX: usize = 256 << 10;

/// The processes of this host, of which each is looked at once.
pub(super) struct Processes(Vec<Process>);

struct Process {
    pid: i32,
    /// Its first 15 bytes.
    name: String,
    /// A line for each hierarchy.
    cgroup: String,
}

impl Processes {
    pub(super) fn read() -> Self {
        let names = entries(Path::new("/proc"));
        let pids = names.iter().filter_map(|path| {
            let pid = path.file_name()?.to_str()?.parse().ok()?;
            Some(Process {
                pid,
                name: read(pid, "comm")?,
                cgroup: read(pid, "cgroup")?,
            })
        });
        Processes(pids.collect())
    }

    /// The cgroups of a process, a line for each hierarchy; `None`: there is no such
    /// process.
    pub(super) fn cgroup(&self, pid: i32) -> Option<&str> {
        let process = self.0.iter().find(|process| process.pid == pid);
        process.map(|process| process.cgroup.as_str())
    }

    /// The process of a container that was started first.
    pub(super) fn first_of(&self, id: &str) -> Option<i32> {
        let inside = |process: &&Process| {
            let mut lines = process.cgroup.lines();
            // podman's monitor is in a cgroup of its own with a similar name.
            lines.any(|line| line.contains(id) && !line.contains("conmon"))
        };
        let pids = self.0.iter().filter(inside).map(|process| process.pid);
        pids.min_by_key(|pid| (start_time(*pid).unwrap_or(u64::MAX), *pid))
    }

    /// The bundles of the containers that the processes watch over which engines start for
    /// them, wherever the engine's directories are; and paths beside them.
    pub(super) fn bundles(&self) -> impl Iterator<Item = PathBuf> {
        self.0.iter().flat_map(|process| {
            if process.name.starts_with("containerd-shim") {
                // A shim of a pod serves all its containers: their bundles are beside
                // that of the sandbox, in which the shim works.
                let cwd = fs::read_link(directory(process.pid).join("cwd"));
                let above = cwd.ok().and_then(|cwd| Some(cwd.parent()?.to_owned()));
                above.map(|above| entries(&above)).unwrap_or_default()
            } else if process.name.trim_end() == "conmon" {
                let line = read(process.pid, "cmdline").unwrap_or_default();
                let bundle = option(&line, &["-b", "--bundle"]);
                bundle.map(PathBuf::from).into_iter().collect()
            } else {
                Vec::new()
            }
        })
    }
}

fn option<'a>(line: &'a str, names: &[&str]) -> Option<&'a str> {
    let mut arguments = line.split('\0');
    while let Some(argument) = arguments.next() {
        if names.contains(&argument) {
            return arguments.next();
        }
    }
    None
}

/// The 22nd field of /proc/PID/stat; the second may have blanks and parentheses.
fn start_time(pid: i32) -> Option<u64> {
    let stat = read(pid, "stat")?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

fn read(pid: i32, file: &str) -> Option<String> {
    let file = fs::File::open(directory(pid).join(file)).ok()?;
    let bytes = crate::oci::capped(file, MAX).ok()??;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn directory(pid: i32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_found_with_its_start() {
        let processes = Processes::read();
        let me = i32::try_from(std::process::id()).unwrap();
        assert!(processes.cgroup(me).is_some());
        assert!(start_time(me).unwrap() >= start_time(1).unwrap());
        assert_eq!(processes.cgroup(0x3fff_ffff), None);
    }

    #[test]
    fn an_option_has_the_next_argument_as_its_value() {
        let line = "/usr/bin/conmon\0-c\0abc\0-b\0/bundle\0";
        assert_eq!(option(line, &["-b", "--bundle"]), Some("/bundle"));
        assert_eq!(option(line, &["-x"]), None);
    }
}
