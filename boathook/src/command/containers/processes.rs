//! Reads the cgroups of processes from /proc, and finds the processes that monitor containers.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use hook::container::read_start_time as start_time;
use hook::sys::statmount::stat_device_and_inode;
use nix::unistd::geteuid;

use super::bundles::read_directory;

/// The maximum size in bytes of a file in `/proc/PID`. A larger file is ignored.
const MAX_PROCESS_FILE_BYTES: usize = 256 << 10;

/// The beginning of the process name of containerd's shim, which monitors the containers of a pod.
/// The kernel shortens process names to 15 characters.
const SHIM_NAME_PREFIX: &str = "containerd-shim";
/// The process name of conmon, which monitors one container of podman or CRI-O.
const CONMON_NAME: &str = "conmon";
const MONITOR_NAMES: [&str; 2] = [SHIM_NAME_PREFIX, CONMON_NAME];

/// The suffix that the kernel appends to the path of an executable that was removed.
const REMOVED_SUFFIX: &str = " (deleted)";

/// The prefixes of the names that engines and runtimes give to a container's systemd scope. Such a
/// name is, for example, `docker-ID.scope`.
const SCOPE_PREFIXES: [&str; 8] = [
    "docker-",
    "cri-containerd-",
    "nerdctl-",
    "crio-",
    "libpod-",
    "runc-",
    "crun-",
    "youki-",
];

/// The processes of this host and their cgroups, as `/proc` showed them when it was read.
pub(super) struct ProcessSnapshot(Vec<Process>);

struct Process {
    pid: i32,
    /// The content of `/proc/PID/cgroup`, which has a line for each cgroup hierarchy.
    cgroup_lines: String,
}

impl ProcessSnapshot {
    pub(super) fn read() -> Self {
        let entry_paths = read_directory(Path::new("/proc"));
        let processes = entry_paths.iter().filter_map(|path| {
            let pid = path.file_name()?.to_str()?.parse().ok()?;
            Some(Process {
                pid,
                cgroup_lines: read_process_file(pid, "cgroup")?,
            })
        });
        ProcessSnapshot(processes.collect())
    }

    /// Returns the content of `/proc/PID/cgroup` for the process `pid`, or `None` if the process
    /// does not exist.
    pub(super) fn cgroup_lines(&self, pid: i32) -> Option<&str> {
        let process = self.0.iter().find(|process| process.pid == pid);
        process.map(|process| process.cgroup_lines.as_str())
    }

    /// Returns the pid of the container's oldest process, which is usually the init process.
    pub(super) fn find_first_pid(&self, container_id: &str) -> Option<i32> {
        let is_in_container =
            |process: &&Process| is_in_container_cgroup(&process.cgroup_lines, container_id);
        let pids = self
            .0
            .iter()
            .filter(is_in_container)
            .map(|process| process.pid);
        pids.min_by_key(|pid| (start_time(*pid).unwrap_or(u64::MAX), *pid))
    }

    /// Returns the bundles of containers that containerd's shims or conmon monitor, including
    /// bundles outside of the engines' default directories. Some of the directories may not be
    /// bundles.
    pub(super) fn find_monitored_bundles(&self) -> impl Iterator<Item = PathBuf> {
        self.0.iter().flat_map(|process| {
            let name = find_program_name(process.pid).unwrap_or_default();
            if name.starts_with(SHIM_NAME_PREFIX) {
                // One shim monitors all containers of a pod. Its working directory is the bundle of
                // the pod's sandbox container. The bundles of the other containers are in the same
                // parent directory.
                let cwd = fs::read_link(process_dir(process.pid).join("cwd"));
                let parent = cwd.ok().and_then(|cwd| Some(cwd.parent()?.to_owned()));
                parent
                    .map(|parent| read_directory(&parent))
                    .unwrap_or_default()
            } else if name == CONMON_NAME {
                let command_line = read_process_file(process.pid, "cmdline").unwrap_or_default();
                let bundle = find_option_value(&command_line, &["-b", "--bundle"]);
                bundle.map(PathBuf::from).into_iter().collect()
            } else {
                Vec::new()
            }
        })
    }
}

/// Returns whether a process belongs to the container `container_id`. `cgroup_lines` is the content
/// of `/proc/PID/cgroup`. The name of a container's cgroup is the container's id. With the systemd
/// cgroup driver, the name is an engine's prefix, the id and `.scope`.
pub(super) fn is_in_container_cgroup(cgroup_lines: &str, container_id: &str) -> bool {
    let is_container_name = |name: &str| {
        let name = name.strip_suffix(".scope").unwrap_or(name);
        let prefix = name.strip_suffix(container_id);
        prefix.is_some_and(|prefix| prefix.is_empty() || SCOPE_PREFIXES.contains(&prefix))
    };
    let mut component_names = cgroup_lines.lines().flat_map(|line| line.split('/'));
    !container_id.is_empty() && component_names.any(is_container_name)
}

/// Returns the file name of the program that the process `pid` executes. Returns `None` if the
/// process belongs to another user or is in a container. The process name and command line are not
/// trusted, because any user can choose them. A program in a container is not trusted, because its
/// file can have any name.
fn find_program_name(pid: i32) -> Option<String> {
    // Comparing the process name first skips most processes. Reading the metadata of a program can
    // block if its file system does not answer.
    let name = read_process_file(pid, "comm")?;
    if !MONITOR_NAMES
        .iter()
        .any(|monitor| name.starts_with(monitor))
    {
        return None;
    }
    let status = read_process_file(pid, "status")?;
    let parse_ids = |key| {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        let ids = line.split_whitespace().map(|id| id.parse().ok());
        ids.collect::<Option<Vec<u32>>>()
    };
    let own_uid = geteuid().as_raw();
    // `NSpid` contains several numbers if the process is in the PID namespace of a container.
    let is_own_process =
        parse_ids("Uid:")?.iter().all(|uid| *uid == own_uid) && parse_ids("NSpid:")?.len() == 1;
    let exe = process_dir(pid).join("exe");
    let path = is_own_process.then(|| fs::read_link(&exe).ok())??;
    let device_and_inode = |path: &Path| {
        let path = CString::new(path.as_os_str().as_bytes()).ok()?;
        stat_device_and_inode(&path).ok()
    };
    let name = path.file_name()?.to_str()?;
    // An engine's upgrade removes the program files of running monitors, and the kernel then marks
    // their paths as deleted. Such a process executes a file of the host if it is in the mount
    // namespace of this process.
    if let Some(removed_name) = name.strip_suffix(REMOVED_SUFFIX) {
        return has_own_mount_namespace(pid).then(|| removed_name.to_owned());
    }
    let is_on_host = device_and_inode(&exe).is_some_and(|exe| device_and_inode(&path) == Some(exe));
    is_on_host.then(|| name.to_owned())
}

fn has_own_mount_namespace(pid: i32) -> bool {
    let read_namespace = |dir: PathBuf| fs::read_link(dir.join("ns/mnt")).ok();
    let own_namespace = read_namespace("/proc/self".into());
    own_namespace.is_some() && read_namespace(process_dir(pid)) == own_namespace
}

fn find_option_value<'a>(command_line: &'a str, option_names: &[&str]) -> Option<&'a str> {
    let mut arguments = command_line.split('\0');
    while let Some(argument) = arguments.next() {
        for option_name in option_names {
            match argument.strip_prefix(option_name) {
                Some("") => return arguments.next(),
                Some(value) if option_name.starts_with("--") && value.starts_with('=') => {
                    return Some(&value[1..]);
                }
                _ => {}
            }
        }
    }
    None
}

#[expect(clippy::disallowed_methods, reason = "a file of the kernel")]
fn read_process_file(pid: i32, file_name: &str) -> Option<String> {
    let file = fs::File::open(process_dir(pid).join(file_name)).ok()?;
    let bytes = hook::oci::read_capped(file, MAX_PROCESS_FILE_BYTES).ok()??;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn process_dir(pid: i32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use super::*;

    #[test]
    fn this_process_is_found_with_its_start() {
        let processes = ProcessSnapshot::read();
        let me = i32::try_from(std::process::id()).unwrap();
        assert!(processes.cgroup_lines(me).is_some());
        assert!(start_time(me).unwrap() >= start_time(1).unwrap());
        assert_eq!(processes.cgroup_lines(0x3fff_ffff), None);
    }

    /// An upgrade of the engine replaces the program of a monitor that runs.
    #[test]
    fn a_monitor_is_found_after_its_program_was_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("conmon");
        let mut shells = vec![vec!["sh"]];
        if geteuid().is_root() {
            shells.push(vec!["unshare", "--mount", "sh"]);
        }
        for words in shells {
            // `cp` writes the copy, because a process that another test starts meanwhile would
            // inherit the open file, and the copy could not be executed.
            let mut cp = Command::new("cp");
            assert!(cp.arg("/bin/sh").arg(&program).status().unwrap().success());
            let is_on_host = words.len() == 1;
            let mut command = Command::new(words[0]);
            let script = "exec \"$0\" -c 'read line'";
            command.args(&words[1..]).args(["-c", script]).arg(&program);
            let mut process = command.stdin(Stdio::piped()).spawn().unwrap();
            let pid = process.id().cast_signed();
            while read_process_file(pid, "comm").as_deref() != Some("conmon\n") {
                std::thread::sleep(Duration::from_millis(5));
            }
            let name = find_program_name(pid);
            fs::remove_file(&program).unwrap();
            let name_after_removal = find_program_name(pid);
            process.kill().unwrap();
            process.wait().unwrap();
            assert_eq!(name.as_deref(), Some("conmon"), "{words:?}");
            let expected = is_on_host.then_some("conmon");
            assert_eq!(name_after_removal.as_deref(), expected, "{words:?}");
        }
    }

    #[test]
    fn the_value_of_an_option_is_found_in_each_form() {
        for (command_line, value) in [
            ("conmon\0-c\0abc\0-b\0/run/a\0", Some("/run/a")),
            ("conmon\0--bundle\0/run/a\0", Some("/run/a")),
            ("conmon\0--bundle=/run/a\0-c\0", Some("/run/a")),
            ("conmon\0--bundled\0/run/a\0", None),
            ("conmon\0-bundle\0/run/a\0", None),
            ("conmon\0", None),
        ] {
            let found = find_option_value(command_line, &["-b", "--bundle"]);
            assert_eq!(found, value, "{command_line:?}");
        }
    }

    #[test]
    fn a_container_is_in_the_cgroup_with_its_id() {
        for (cgroup_lines, is_its) in [
            ("0::/system.slice/docker-abcdefghijkl.scope", true),
            ("4:devices:/kubepods/pod1/abcdefghijkl\n0::/", true),
            (
                "0::/machine.slice/libpod-abcdefghijkl.scope/container",
                true,
            ),
            ("0::/abcdefghijkl/init/deeper", true),
            ("0::/machine.slice/libpod-conmon-abcdefghijkl.scope", false),
            ("0::/abcdefghijkl-evil", false),
            ("0::/evil-abcdefghijkl", false),
            ("0::/system.slice/evil-abcdefghijkl.scope", false),
            ("0::/system.slice/cri-containerd-abcdefghijkl.scope", true),
            ("0::/docker-abcdefghijkl2.scope", false),
            ("0::/", false),
        ] {
            assert_eq!(
                is_in_container_cgroup(cgroup_lines, "abcdefghijkl"),
                is_its,
                "{cgroup_lines}"
            );
        }
        assert!(!is_in_container_cgroup("0::/", ""));
    }

    /// Another user cannot fake a monitor by a process with the same name as an engine's.
    #[test]
    fn only_a_process_of_this_user_watches_over_a_container() {
        use std::os::unix::process::CommandExt;
        if !geteuid().is_root() {
            return skip::report(module_path!(), "needs root");
        }
        let directory = tempfile::tempdir().unwrap();
        let conmon = directory.path().join("conmon");
        // The copy is made by another process: a process that another test starts meanwhile would
        // inherit the open copy, which then could not be executed (ETXTBSY).
        let mut cp = Command::new("cp");
        let copy_status = cp.args(["--dereference", "/bin/sh"]).arg(&conmon).status();
        assert!(copy_status.unwrap().success());
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(directory.path(), permissions).unwrap();
        for (uid, is_trusted) in [(0, true), (1000, false)] {
            let bundle = directory.path().join(uid.to_string());
            let mut process = Command::new(&conmon);
            process.args(["-c", "sleep 60; exit", "-b"]).arg(&bundle);
            let mut process = process.uid(uid).process_group(0).spawn().unwrap();
            let found: Vec<_> = ProcessSnapshot::read().find_monitored_bundles().collect();
            let group = nix::unistd::Pid::from_raw(i32::try_from(process.id()).unwrap());
            nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL).unwrap();
            process.wait().unwrap();
            assert_eq!(found.contains(&bundle), is_trusted, "{uid}");
        }
    }
}
