//! Cgroups for tests on a real kernel, and a process in one of them that tries to open
//! devices. Dropping the values removes everything.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::stat::{Mode, SFlag, makedev, mknod};

/// Reports that the running test is skipped. The name of the thread is the name of the test.
pub(in crate::cgroup) fn skip(reason: &str) {
    skip::report(thread::current().name().unwrap_or("cgroup"), reason);
}

/// A readable character device that no container has by default.
pub(in crate::cgroup) const HWRNG: (u32, u32) = (10, 183);
pub(in crate::cgroup) const FUSE: (u32, u32) = (10, 229);

/// A cgroup of the test in a mounted hierarchy.
pub(in crate::cgroup) struct TestCgroup {
    pub(in crate::cgroup) dir: PathBuf,
}

impl TestCgroup {
    pub(in crate::cgroup) fn new(parent: &Path) -> io::Result<Self> {
        Self::named(parent, "")
    }

    pub(in crate::cgroup) fn named(parent: &Path, suffix: &str) -> io::Result<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("boathook-test-{}-{count}{suffix}", std::process::id());
        let dir = parent.join(name);
        fs::create_dir(&dir)?;
        Ok(Self { dir })
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        // A process that was killed leaves its cgroup a moment later.
        for _ in 0..100 {
            if fs::remove_dir(&self.dir).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        eprintln!("could not remove {}", self.dir.display());
    }
}

/// A process in a cgroup.
pub(in crate::cgroup) struct Prober {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    nodes: tempfile::TempDir,
}

impl Prober {
    pub(in crate::cgroup) fn in_cgroup(cgroup: &Path) -> Self {
        const SCRIPT: &str = r#"
            while read -r how path; do
                case $how in
                    r) said=$( (: < "$path") 2>&1 ) ;;
                    rw) said=$( (: <> "$path") 2>&1 ) ;;
                esac && echo ok || echo "$said"
            done"#;
        let mut child = Command::new("/bin/sh")
            .args(["-c", SCRIPT])
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let prober = Self {
            orders: child.stdin.take().unwrap(),
            answers: BufReader::new(child.stdout.take().unwrap()),
            child,
            nodes: tempfile::tempdir().unwrap(),
        };
        fs::write(cgroup.join("cgroup.procs"), prober.pid().to_string()).unwrap();
        prober
    }

    pub(in crate::cgroup) fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Opens a character device in the given way. Returns whether the cgroup allowed it;
    /// errors other than EPERM come from the driver.
    pub(in crate::cgroup) fn may_open(&mut self, how: &str, (major, minor): (u32, u32)) -> bool {
        let node = self.nodes.path().join(format!("{major}-{minor}"));
        if !node.exists() {
            let device = makedev(major.into(), minor.into());
            mknod(
                &node,
                SFlag::S_IFCHR,
                Mode::from_bits_truncate(0o600),
                device,
            )
            .unwrap();
        }
        writeln!(self.orders, "{how} {}", node.display()).unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert!(!answer.is_empty(), "the prober is gone");
        !answer.contains("Operation not permitted")
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
