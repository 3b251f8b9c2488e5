//! Processes: which cgroup they are in, and those that watch over containers.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Container, entries, of_bundle};

/// More than any file of /proc that is read here has.
const MAX: usize = 256 << 10;

/// The cgroups of a process, a line for each hierarchy; `None`: there is no such
/// process.
pub(super) fn cgroup(pid: i32) -> Option<String> {
    read(pid, "cgroup")
}

/// The process of a container that was started first.
pub(super) fn first_of(id: &str) -> Option<i32> {
    let inside = |pid: &i32| {
        let cgroup = cgroup(*pid).unwrap_or_default();
        let mut lines = cgroup.lines();
        // podman's monitor is in a cgroup of its own with a similar name.
        lines.any(|line| line.contains(id) && !line.contains("conmon"))
    };
    let pids = pids().into_iter().filter(inside);
    pids.min_by_key(|pid| (start_time(*pid).unwrap_or(u64::MAX), *pid))
}

/// The containers that the processes watch over which engines start for them,
/// wherever the engine's directories are.
pub(super) fn containers() -> Vec<Container> {
    let mut found = Vec::new();
    for pid in pids() {
        let Some(name) = read(pid, "comm") else {
            continue;
        };
        // The kernel keeps 15 bytes of a name.
        if name.starts_with("containerd-shim") {
            // A shim of a pod serves all its containers: their bundles are beside
            // that of the sandbox, in which the shim works.
            let cwd = fs::read_link(directory(pid).join("cwd"));
            let above = cwd.ok().and_then(|cwd| Some(cwd.parent()?.to_owned()));
            let bundles = above.map(|above| entries(&above)).unwrap_or_default();
            found.extend(bundles.into_iter().filter_map(of_bundle));
        } else if name.trim_end() == "conmon" {
            let line = read(pid, "cmdline").unwrap_or_default();
            let bundle = option(&line, &["-b", "--bundle"]);
            found.extend(bundle.map(PathBuf::from).and_then(of_bundle));
        }
    }
    found
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

fn pids() -> Vec<i32> {
    let names = entries(Path::new("/proc"));
    let pids = names
        .iter()
        .filter_map(|path| path.file_name()?.to_str()?.parse().ok());
    pids.collect()
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
        let me = i32::try_from(std::process::id()).unwrap();
        assert!(cgroup(me).is_some());
        assert!(start_time(me).unwrap() >= start_time(1).unwrap());
        assert_eq!(cgroup(0x3fff_ffff), None);
    }

    #[test]
    fn an_option_has_the_next_argument_as_its_value() {
        let line = "/usr/bin/conmon\0-c\0abc\0-b\0/bundle\0";
        assert_eq!(option(line, &["-b", "--bundle"]), Some("/bundle"));
        assert_eq!(option(line, &["-x"]), None);
    }
}
