//! The system calls of a program, and one of them that fails.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// The way in which a call fails.
const FAILURES: [&str; 7] = [
    "error=EPERM",
    "error=ENOENT",
    "error=EIO",
    "error=ENOMEM",
    "error=ENOSPC",
    "error=EMFILE",
    KILLED,
];

const KILLED: &str = "signal=KILL";

/// Calls that cannot fail, or by which the program starts before any code of its
/// own.
const EXEMPT: [&str; 19] = [
    "arch_prctl",
    "brk",
    "execve",
    "exit_group",
    "getrandom",
    "mmap",
    "mprotect",
    "mremap",
    "munmap",
    "poll",
    "prlimit64",
    // The kernel makes it, in place of a sleep that strace interrupted.
    "restart_syscall",
    "rseq",
    "rt_sigaction",
    "set_robust_list",
    "set_tid_address",
    "sigaltstack",
    "timer_delete",
    "umask",
];

/// The program; without it these tests are skipped.
pub(super) const STRACE: &str = "/usr/bin/strace";

/// One call of a program, and how it fails.
pub(super) struct Fault {
    call: String,
    /// The position among the calls of this name, from 1.
    number: usize,
    failure: &'static str,
    /// The last name of the path that it is for, if it is for one.
    file: String,
}

impl Fault {
    /// The arguments of strace, up to the program.
    pub(super) fn arguments(&self) -> [String; 8] {
        let Self {
            call,
            number,
            failure,
            ..
        } = self;
        [
            "-qq".to_string(),
            "-o".to_string(),
            "/dev/null".to_string(),
            "-e".to_string(),
            format!("trace={call}"),
            "-e".to_string(),
            format!("inject={call}:{failure}:when={number}"),
            "--".to_string(),
        ]
    }

    /// Whether the program is killed, and can print nothing.
    pub(super) fn kills(&self) -> bool {
        self.failure == KILLED
    }

    /// Whether `path` or a directory above it may be what is reported not to exist. A
    /// call that names no path may be for any open file.
    pub(super) fn hides(&self, path: &Path) -> bool {
        let is_named = path.iter().any(|name| *name == *self.file);
        self.failure == "error=ENOENT" && (self.file.is_empty() || is_named)
    }

    /// Whether the program may be unable to print anything.
    pub(super) fn silences(&self) -> bool {
        self.kills() || self.call == "write"
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            call,
            number,
            failure,
            file,
        } = self;
        write!(formatter, "{call} number {number} ({file:?}): {failure}")
    }
}

/// Why these tests cannot run, if they cannot.
pub(super) fn missing() -> Option<String> {
    (!Path::new(STRACE).is_file()).then(|| format!("needs {STRACE} (package strace)"))
}

/// The arguments of strace that write all calls to a file.
pub(super) fn recording(file: &Path) -> [String; 4] {
    [
        "-qq".to_string(),
        "-o".to_string(),
        file.display().to_string(),
        "--".to_string(),
    ]
}

/// The arguments of strace that write the calls of each process to a file of its own, whose name
/// is that of `file` with the process's id.
pub(super) fn recording_each_process(file: &Path) -> [String; 5] {
    let [quiet, output, file, end] = recording(file);
    ["-ff".to_string(), quiet, output, file, end]
}

/// The faults to try of those that the calls of child processes allow: all in the long run, else
/// about `count`. strace counts the calls of each process by themselves.
pub(super) fn child_faults(recorded: &Path, count: usize) -> impl Iterator<Item = Fault> + use<> {
    let prefix = format!("{}.", recorded.file_name().unwrap().to_str().unwrap());
    let files = fs::read_dir(recorded.parent().unwrap()).unwrap();
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.retain(|file| {
        file.file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with(&prefix)
    });
    files.sort();
    // The file of the process that strace starts begins with execve(2).
    let is_child = |file: &&PathBuf| !fs::read_to_string(file).unwrap().starts_with("execve(");
    let children: Vec<&PathBuf> = files.iter().filter(is_child).collect();
    assert!(!children.is_empty(), "no child process was recorded");
    let mut seen = HashSet::new();
    let all = children
        .into_iter()
        .flat_map(|file| all_faults(file, |_| true));
    let all = all.filter(|fault| seen.insert((fault.call.clone(), fault.number, fault.failure)));
    some(all.collect(), count)
}

/// The last name of the first path in a recorded call.
fn last_name(line: &str) -> String {
    let path = line.split('"').nth(1).unwrap_or_default();
    let name = Path::new(path).file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The faults to try of those that the recorded calls allow: all in the long run,
/// else about `count`.
pub(super) fn faults(recorded: &Path, count: usize) -> impl Iterator<Item = Fault> + use<> {
    some(all_faults(recorded, |_| true), count)
}

/// The same of the calls from the first that has `from` to the next that has `to`.
pub(super) fn faults_between(
    recorded: &Path,
    from: &str,
    to: &str,
    count: usize,
) -> impl Iterator<Item = Fault> + use<> {
    let (mut begun, mut ended) = (false, false);
    let is_between = |call: &str| {
        ended |= begun && call.contains(to);
        begun |= call.contains(from);
        begun && !ended
    };
    some(all_faults(recorded, is_between), count)
}

/// A disk that refuses, at each call of this name.
pub(super) fn disk_faults(recorded: &Path, call: &str) -> Vec<Fault> {
    let mut all = all_faults(recorded, |line| line.starts_with(call));
    all.retain(|fault| fault.failure == "error=EIO");
    assert!(!all.is_empty(), "no {call} was recorded");
    all
}

/// The faults of those recorded calls that are wanted.
fn all_faults(recorded: &Path, mut is_wanted: impl FnMut(&str) -> bool) -> Vec<Fault> {
    let text = fs::read_to_string(recorded).unwrap();
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    let mut all = Vec::new();
    // The program ends, for these tests, where it becomes another one.
    let own = text
        .lines()
        .enumerate()
        .take_while(|(line, text)| *line == 0 || !text.starts_with("execve("));
    for (_, line) in own {
        let call = line.split('(').next().unwrap_or_default();
        if call.is_empty() || !call.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            continue;
        }
        // strace prints a call that it does not know so, and cannot have it fail.
        if call.starts_with("syscall_0x") {
            continue;
        }
        let number = numbers.entry(call).or_default();
        *number += 1;
        let is_wanted = is_wanted(line);
        if !is_wanted || EXEMPT.contains(&call) {
            continue;
        }
        let failures = FAILURES.into_iter().filter(|failure| {
            // A close(2) that fails closes nothing here, unlike the kernel's, and
            // the standard library panics at one of a directory.
            call != "close" || *failure == KILLED
        });
        all.extend(failures.map(|failure| Fault {
            call: call.to_string(),
            number: *number,
            failure,
            file: last_name(line),
        }));
    }
    all
}

/// Prints how far a long run is. `BOATHOOK_FAILURES=long:N` begins with fault number N.
fn some(all: Vec<Fault>, count: usize) -> impl Iterator<Item = Fault> {
    assert!(all.len() > count, "too few calls were recorded");
    let value = std::env::var("BOATHOOK_FAILURES").unwrap_or_default();
    let first = match value.split_once(':') {
        Some((_, number)) => number.parse().expect("BOATHOOK_FAILURES=long:NUMBER"),
        None => 0,
    };
    let long = value.starts_with("long");
    let mut step = if long { 1 } else { all.len() / count };
    // So that every kind of failure comes up.
    while step > 1 && step.is_multiple_of(FAILURES.len()) {
        step += 1;
    }
    let total = all.len().div_ceil(step);
    let chosen = all.into_iter().step_by(step).enumerate().skip(first);
    chosen.map(move |(number, fault)| {
        if number % 100 == 0 {
            eprintln!("{number} of {total} faults: {fault}");
        }
        fault
    })
}
