//! Reads the state and the start time of a container's first process from `/proc`.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::str::FromStr;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use super::procfs::{Procfs, read_proc};
use super::{Error, HANDLE_FLAGS, Result};

/// The maximum number of bytes that are read from `/proc/PID/stat`. The file is one line of some 50
/// numbers.
const MAX_STAT_BYTES: u64 = 64 << 10;

/// The maximum number of bytes that are read from `/proc/PID/status`. Its longest line lists up to
/// 65,536 groups (NGROUPS_MAX) of at most 11 characters each, before the line that is needed.
const MAX_STATUS_BYTES: u64 = 1 << 20;

/// The states that `/proc/PID/stat` shows for a thread that has ended: zombie (`Z`) and dead (`X`).
const ENDED_STATES: [char; 2] = ['Z', 'X'];

/// The flag of a thread that is ending (`PF_EXITING` of `include/linux/sched.h`), in field 9 of
/// `/proc/PID/stat`. The thread has lost its root directory and its namespaces, or will lose them
/// soon, but its state is not yet one of [`ENDED_STATES`].
const PF_EXITING: u64 = 0x4;

/// The state of a process that is identified by its id and its start time. The id alone does not
/// identify a process, because the kernel reuses ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    /// At least one thread of the process is alive.
    Running,
    /// All threads of the process have ended. Another process may have the same id now.
    Ended,
    /// It is not known whether the process is alive, because `/proc` could not be read.
    Unknown,
}

/// Returns the state of the process that has the id `pid` and the start time `start_time`. The
/// start time is in clock ticks since the boot (field 22 of `/proc/PID/stat`).
pub fn read_process_state(pid: i32, start_time: u64) -> ProcessState {
    // ENOENT and ESRCH mean that the process has ended. The read is repeated once, because a single
    // failure is not taken as proof.
    for _ in 0..2 {
        match find_start_time(pid) {
            Ok(current_start_time) if current_start_time == start_time => {
                return ProcessState::Running;
            }
            Ok(_) => return ProcessState::Ended,
            Err(Error::File(error)) if [Errno::ENOENT, Errno::ESRCH].contains(&error.errno()) => {}
            Err(_) => return ProcessState::Unknown,
        }
    }
    ProcessState::Ended
}

/// Returns the start time of the process with the id `pid`, in clock ticks since the boot. Returns
/// `None` if all threads of the process have ended.
pub fn read_start_time(pid: i32) -> Option<u64> {
    find_start_time(pid).ok()
}

fn find_start_time(pid: i32) -> Result<u64> {
    read_process_start_time(&Procfs::open()?.open_process(pid)?, pid)
}

/// Reports whether the process with the id `pid` is the init process of another PID namespace,
/// which is nested in that of this process. When an init process ends, the kernel kills all other
/// processes of its namespace (pid_namespaces(7)).
pub fn is_init_process(pid: i32) -> bool {
    let read_status = || {
        let process_dir = Procfs::open()?.open_process(pid)?;
        let path = || PathBuf::from(format!("/proc/{pid}/status"));
        read_proc(&process_dir, "status", MAX_STATUS_BYTES, path)
    };
    let status = read_status().unwrap_or_default();
    let text = String::from_utf8_lossy(&status);
    let pid_list = text.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let pids: Vec<&str> = pid_list
        .into_iter()
        .flat_map(str::split_whitespace)
        .collect();
    pids.len() > 1 && pids.last() == Some(&"1")
}

/// Returns the start time of a process, in clock ticks since the boot. `process_dir` is a handle on
/// `/proc/PID`. `pid` is only used in messages.
pub(super) fn read_process_start_time(process_dir: &OwnedFd, pid: i32) -> Result<u64> {
    read_stat_field(process_dir, pid, 22)
}

/// Returns the id of the parent process. `process_dir` is a handle on `/proc/PID`. `pid` is only
/// used in messages.
pub(super) fn read_parent_pid(process_dir: &OwnedFd, pid: i32) -> Result<i32> {
    read_stat_field(process_dir, pid, 4)
}

/// Reads the field `field_number` of `/proc/PID/stat` (proc_pid_stat(5)). The number must be at
/// least 4.
///
/// Fails if all threads of the process have ended, even if `/proc` still lists the process. A
/// process is alive if its main thread has ended while other threads run. This happens when a
/// program calls pthread_exit(3) in the main thread.
fn read_stat_field<T: FromStr>(process_dir: &OwnedFd, pid: i32, field_number: usize) -> Result<T> {
    let stat = read_stat(process_dir, pid)?;
    let mut fields = find_fields_after_name(&stat);
    if fields.is_some_and(has_ended) && find_thread(process_dir, pid, has_ended)?.is_none() {
        fields = None;
    }
    let field = fields.and_then(|fields| fields.split(' ').nth(field_number - 3)?.parse().ok());
    field.ok_or_else(|| open_error(format!("/proc/{pid}/stat").into(), Errno::ESRCH))
}

/// Returns a handle on `/proc/PID/task/TID` of a living thread if the main thread of the process
/// has ended or is ending. Returns `None` if the main thread is alive, or if no thread is.
pub(super) fn find_main_thread_substitute(
    process_dir: &OwnedFd,
    pid: i32,
) -> Result<Option<OwnedFd>> {
    let stat = read_stat(process_dir, pid)?;
    if find_fields_after_name(&stat).is_none_or(is_exiting) {
        find_thread(process_dir, pid, is_exiting)
    } else {
        Ok(None)
    }
}

/// Returns a handle on `/proc/PID/task/TID` of the first thread for which `is_excluded` returns
/// false. `is_excluded` gets the fields of the thread's `stat` file, beginning with the third one.
/// Returns `None` if all threads are excluded.
fn find_thread(
    process_dir: &OwnedFd,
    pid: i32,
    is_excluded: fn(&str) -> bool,
) -> Result<Option<OwnedFd>> {
    let to_error = |errno| open_error(format!("/proc/{pid}/task").into(), errno);
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut threads = Dir::openat(process_dir, "task", flags, Mode::empty()).map_err(to_error)?;
    for entry in threads.iter() {
        let entry = entry.map_err(to_error)?;
        let Ok(name) = entry.file_name().to_str() else {
            continue;
        };
        if name.starts_with('.') {
            continue;
        }
        let path = format!("task/{name}");
        let thread_dir = openat(
            process_dir,
            path.as_str(),
            HANDLE_FLAGS | OFlag::O_DIRECTORY,
            Mode::empty(),
        );
        // A thread whose files cannot be read is skipped: it has ended since the directory was
        // listed.
        if let Ok(thread_dir) = thread_dir
            && let Ok(stat) = read_stat(&thread_dir, pid)
            && find_fields_after_name(&stat).is_some_and(|fields| !is_excluded(fields))
        {
            return Ok(Some(thread_dir));
        }
    }
    Ok(None)
}

fn read_stat(process_dir: &OwnedFd, pid: i32) -> Result<String> {
    let path = || PathBuf::from(format!("/proc/{pid}/stat"));
    let bytes = read_proc(process_dir, "stat", MAX_STAT_BYTES, path)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the fields of `/proc/PID/stat` that begin with the third field, the state.
///
/// The second field is the process's name in parentheses. A program can choose any name, even one
/// with spaces and parentheses. So the closing parenthesis is searched from the end of the text.
fn find_fields_after_name(stat: &str) -> Option<&str> {
    stat.rsplit_once(") ").map(|(_, fields)| fields)
}

/// Reports whether a thread has ended. `fields` begins with the third field of its `stat` file.
fn has_ended(fields: &str) -> bool {
    fields.starts_with(ENDED_STATES)
}

/// Reports whether a thread has ended or is ending. Such a thread may have no root directory and no
/// namespaces. Other functions still count an ending process as alive: the init process of a PID
/// namespace waits in this state until all other processes of the namespace have ended.
fn is_exiting(fields: &str) -> bool {
    let flags = fields.split(' ').nth(9 - 3);
    let flags: u64 = flags.and_then(|flags| flags.parse().ok()).unwrap_or(0);
    has_ended(fields) || flags & PF_EXITING != 0
}

fn open_error(path: PathBuf, errno: Errno) -> Error {
    Error::system("open", path, errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_with_the_same_start_time_runs() {
        let me = i32::try_from(std::process::id()).unwrap();
        let started = read_start_time(me).unwrap();
        assert_eq!(read_process_state(me, started), ProcessState::Running);
        assert_eq!(read_process_state(me, started + 1), ProcessState::Ended);
        assert_eq!(
            read_process_state(0x3fff_ffff, started),
            ProcessState::Ended
        );
        assert!(!is_init_process(me));
    }

    /// The kernel shows the flags of a thread that is ending before it shows its new state.
    #[test]
    fn a_thread_that_is_ending_is_alive_without_a_root() {
        for (fields, is_expected_to_be_ending, is_expected_to_have_ended) in [
            ("S 1 7 7 0 -1 4194560 90 0 0 0", false, false),
            ("R 1 7 7 0 -1 4194564 90 0 0 0", true, false),
            ("Z 1 7 7 0 -1 4194560 90 0 0 0", true, true),
            ("X", true, true),
            ("S 1", false, false),
        ] {
            assert_eq!(is_exiting(fields), is_expected_to_be_ending, "{fields}");
            assert_eq!(has_ended(fields), is_expected_to_have_ended, "{fields}");
        }
    }

    #[test]
    fn a_process_that_is_not_waited_for_has_ended() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let process_dir = Procfs::open().unwrap().open_process(pid).unwrap();
        let is_zombie = || {
            read_stat(&process_dir, pid)
                .is_ok_and(|stat| find_fields_after_name(&stat).is_some_and(has_ended))
        };
        while !is_zombie() {
            std::thread::yield_now();
        }
        assert_eq!(read_process_state(pid, 1), ProcessState::Ended);
        assert_eq!(read_start_time(pid), None);
        child.wait().unwrap();
    }
}
