//! A Docker daemon of the test's own, with nothing but temporary directories.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use harness::cgroup_parent::CgroupParent;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The daemon's files, as the host under `host` has them.
pub(crate) const CONFIG: &str = "host/etc/docker/daemon.json";
const SOCKET: &str = "host/run/docker.sock";

/// Starts the daemon where it can write to directories that no option of it names.
const PRIVATE: &str = "
    mount --make-rprivate /
    mount -t tmpfs tmpfs /run
    for name in etc opt
    do
        mkdir /run/$name /run/$name-work
        mount -t overlay -o lowerdir=/$name,upperdir=/run/$name,workdir=/run/$name-work overlay /$name
    done
    exec dockerd \"$@\"
";

/// How long the daemon may take to answer.
const START: Duration = Duration::from_secs(60);

/// A daemon that ends with this value.
pub(crate) struct Docker {
    daemon: Child,
    dir: tempfile::TempDir,
    /// Removed when the daemon has ended.
    _cgroups: CgroupParent,
}

impl Docker {
    /// Starts a daemon; `None`, and the test is skipped, where it cannot.
    pub(crate) fn start() -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            skip::report("the image", "dockerd needs root");
            return None;
        }
        if Command::new("dockerd").arg("--version").output().is_err() {
            skip::report("the image", "needs dockerd (package docker.io)");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("host/etc/docker")).unwrap();
        fs::create_dir(at("host/run")).unwrap();
        fs::write(at(CONFIG), "{}").unwrap();
        let log = File::create(at("log")).unwrap();
        let cgroups = CgroupParent::new();
        let daemon = Command::new("unshare")
            .args(["--mount", "sh", "-euc", PRIVATE, "dockerd"])
            .args(["--bridge=none", "--iptables=false", "--config-file"])
            .arg(at(CONFIG))
            .arg("--cgroup-parent")
            .arg(cgroups.path())
            .arg("--data-root")
            .arg(at("data"))
            .arg("--exec-root")
            .arg(at("exec"))
            .arg("--pidfile")
            .arg(at("host/run/docker.pid"))
            .arg(format!("--host=unix://{}", at(SOCKET).display()))
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut docker = Self {
            daemon,
            dir,
            _cgroups: cgroups,
        };
        let began = Instant::now();
        while !docker
            .client(&["version"])
            .output()
            .unwrap()
            .status
            .success()
        {
            let ended = docker.daemon.try_wait().unwrap();
            if ended.is_some() || began.elapsed() > START {
                panic!(
                    "dockerd does not start: {}",
                    fs::read_to_string(docker.dir().join("log")).unwrap()
                );
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Some(docker)
    }

    /// The daemon's directory, with room for the test's own files.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Runs a command that must go well; gives what it printed.
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        let output = self.client(arguments).output().unwrap();
        assert!(output.status.success(), "docker {arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn client(&self, arguments: &[&str]) -> Command {
        let mut client = Command::new("docker");
        client.env(
            "DOCKER_HOST",
            format!("unix://{}", self.dir().join(SOCKET).display()),
        );
        // The old builder is in the daemon; the new one may be a plugin that is missing.
        client.env("DOCKER_BUILDKIT", "0").args(arguments);
        client
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        // It ends its containerd and unmounts what it mounted.
        let _ = kill(
            Pid::from_raw(self.daemon.id().cast_signed()),
            Signal::SIGTERM,
        );
        let _ = self.daemon.wait();
    }
}
