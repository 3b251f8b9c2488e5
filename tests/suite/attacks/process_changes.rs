//! Changes that the first process of a container makes of itself, so that a tool cannot enter the
//! container or takes it for one that has ended.

use std::fs;
use std::path::{Path, PathBuf};

use harness::bundle::{Bundle, BundleBuilder};
use harness::compile::{self, Libc};
use harness::patience::wait_until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const PROGRAM: &str = "/usr/bin/changed-process";
const FLAG: &str = "/change";
/// A change that the first process of a container makes of itself.
pub(super) struct ProcessChange {
    pub(super) arguments: &'static [&'static str],
    /// It has no rights at all.
    pub(super) unprivileged: bool,
    /// The first process ends and a child of it goes on, which only a shared PID namespace allows.
    pub(super) ends: bool,
    /// Whether the container's mount namespace can be entered after it.
    pub(super) enterable: bool,
}

pub(super) const PROCESS_CHANGES: [ProcessChange; 7] = [
    ProcessChange {
        arguments: &["child"],
        unprivileged: true,
        ends: true,
        enterable: false,
    },
    ProcessChange {
        arguments: &["thread"],
        unprivileged: true,
        ends: false,
        enterable: true,
    },
    ProcessChange {
        arguments: &["thread-and-child"],
        unprivileged: true,
        ends: false,
        enterable: true,
    },
    ProcessChange {
        arguments: &["chroot", "/usr"],
        unprivileged: false,
        ends: false,
        enterable: false,
    },
    ProcessChange {
        arguments: &["users"],
        unprivileged: true,
        ends: false,
        enterable: false,
    },
    ProcessChange {
        arguments: &["users"],
        unprivileged: false,
        ends: false,
        enterable: false,
    },
    ProcessChange {
        arguments: &["users-and-mounts"],
        unprivileged: false,
        ends: false,
        enterable: false,
    },
];

impl ProcessChange {
    pub(super) fn bundle(&self, container: BundleBuilder) -> Bundle {
        let program = compile::program("changed-process.c", Libc::Glibc, &["-static", "-pthread"]);
        let mut container = container
            .bind(&program.unwrap(), PROGRAM)
            .args([&[PROGRAM, FLAG], self.arguments].concat());
        if self.unprivileged {
            container = container.user(65534, 65534);
        } else {
            container = container
                .capability("CAP_SYS_ADMIN")
                .capability("CAP_SYS_CHROOT");
        }
        if self.ends {
            container = container.host_pids();
        }
        container.build().unwrap()
    }

    /// Has the first process make the change, and waits for it.
    pub(super) fn make(&self, bundle: &Bundle, pid: i32) {
        let links =
            || ["root", "ns/user"].map(|it| fs::read_link(format!("/proc/{pid}/{it}")).ok());
        let before = links();
        // A thread that ends has no links for a moment before it is a zombie.
        let is_zombie = || {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            stat.rsplit_once(") ").unwrap().1.starts_with('Z')
        };
        let ends_thread = self.ends || self.arguments[0].starts_with("thread");
        let is_made = || {
            if ends_thread {
                is_zombie()
            } else {
                links() != before
            }
        };
        fs::write(bundle.in_rootfs(FLAG), "").unwrap();
        assert!(wait_until(is_made), "{:?}", self.arguments);
    }
}

/// Ends all processes of a container when it is dropped. runc takes a container whose first
/// thread has ended for one that has ended, and does not do it.
pub(super) struct EndProcesses {
    pub(super) cgroup: PathBuf,
}

impl Drop for EndProcesses {
    fn drop(&mut self) {
        for pid in processes(&self.cgroup) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        wait_until(|| processes(&self.cgroup).is_empty());
    }
}

/// The processes in a cgroup; none if the cgroup has been removed.
pub(super) fn processes(cgroup: &Path) -> Vec<i32> {
    let listed = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    listed.lines().map(|pid| pid.parse().unwrap()).collect()
}

/// The root directory that the container's last thread sees. A first thread that has ended has
/// none.
pub(super) fn root_of_last_thread(cgroup: &Path) -> PathBuf {
    let pid = processes(cgroup).pop().expect("a process");
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let last = threads.map(|thread| thread.unwrap().path()).max();
    last.expect("a thread").join("root")
}
