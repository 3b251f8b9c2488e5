//! A machine on which nothing of Boathook has ever been.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use harness::cgroup_parent::CgroupParent;
use harness::image::Image;
use harness::patience::wait_until;
use harness::private_host::PrivateHost;
use harness::rootfs::Rootfs;
use harness::scratch;
use tempfile::TempDir;

use super::printed;
use crate::documentation::block;

/// The directory of the release's files.
pub(super) fn release() -> PathBuf {
    let dir = std::env::var_os("BOATHOOK_RELEASE").expect("BOATHOOK_RELEASE names a release");
    dir.into()
}

/// The machine, with the files of the release in /root. Parts are dropped in this
/// order: first whatever runs.
pub(super) struct Clean {
    host: PrivateHost,
    parent: CgroupParent,
    files: TempDir,
}

impl Clean {
    /// `None`, and the test is skipped, where such a machine cannot be had.
    pub(super) fn new(test: &str, root: Result<PathBuf, String>) -> Option<Self> {
        let clean = Self::without_release(test, root)?;
        let home = clean.file("/root");
        for entry in fs::read_dir(release()).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), home.join(entry.file_name())).unwrap();
        }
        Some(clean)
    }

    /// The same machine without files of a release.
    pub(super) fn without_release(test: &str, root: Result<PathBuf, String>) -> Option<Self> {
        let root = match harness::privilege::missing_for_engines().map_or(root, Err) {
            Ok(root) => root,
            Err(reason) => {
                skip::report(test, &reason);
                return None;
            }
        };
        let clean = Self {
            host: PrivateHost::with_root(Some(&root), &[]).unwrap(),
            parent: CgroupParent::new(),
            files: scratch::directory("clean").unwrap(),
        };
        // As systemd mounts it; a directory that others may write to is not trusted.
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(clean.file("/run"), mode).unwrap();
        fs::create_dir_all(clean.file("/root")).unwrap();
        Some(clean)
    }

    /// Returns the path by which processes outside see a file of the machine.
    pub(super) fn file(&self, path: &str) -> PathBuf {
        self.host.file(path)
    }

    pub(super) fn has_path(&self, path: &str) -> bool {
        self.file(path).symlink_metadata().is_ok()
    }

    pub(super) fn write(&self, path: &str, text: &str) {
        let file = self.file(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    /// A path for a file that is not on the overlay of the root.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// The cgroup for containers.
    pub(super) fn cgroup(&self) -> PathBuf {
        self.parent.path()
    }

    pub(super) fn command(&self, program: impl AsRef<Path>) -> Command {
        self.host.command(program)
    }

    /// Returns rpm of this machine for the root of the clean one, which has none. Its scripts run in
    /// that root. They need the PID namespace of the clean machine, because /proc there shows only
    /// these processes. The database of packages goes with this value.
    pub(super) fn rpm(&self) -> Command {
        let mut rpm = Command::new("nsenter");
        rpm.args(["--pid", "--net", "--target", &self.host.pid().to_string()]);
        rpm.args(["--", "rpm", "--root"]).arg(self.file("/"));
        // Debian's rpm has its database in the home directory.
        rpm.env("HOME", self.files.path());
        rpm
    }

    /// Runs lines of a shell in /root, each of which must succeed.
    pub(super) fn run(&self, lines: &str) -> String {
        let mut shell = self.command("/bin/sh");
        shell.args(["-euc", &format!("cd /root\n{lines}")]);
        shell.env(
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        );
        shell.env("HOME", "/root");
        printed(&mut shell)
    }

    /// Runs the commands of a section of README.md, of which there are at most five.
    pub(super) fn run_section(&self, heading: &str) -> String {
        let lines = block("README.md", heading);
        assert!((1..=5).contains(&lines.lines().count()), "{lines}");
        self.run(&lines)
    }

    /// Starts Docker, with an image that commands name.
    pub(super) fn start_docker(&self) -> Daemon {
        let settings = serde_json::json!({
            "data-root": self.path("docker"),
            "exec-root": self.path("docker-run"),
            "cgroup-parent": self.cgroup(),
            "bridge": "none",
            "iptables": false,
            "ip-forward": false,
        });
        self.write("/etc/docker/daemon.json", &format!("{settings:#}\n"));
        let log = fs::File::create(self.path("docker.log")).unwrap();
        let mut command = self.command("dockerd");
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        let daemon = Daemon::start(command, || {
            let mut version = self.command("docker");
            version.arg("version");
            version
        });
        self.import("docker");
        daemon
    }

    /// Has podman run containers here, with an image that commands name.
    pub(super) fn prepare_podman(&self) {
        let storage = format!(
            "[storage]\ndriver = \"overlay\"\ngraphroot = {:?}\n\
             runroot = \"/run/containers/storage\"\n",
            self.path("podman")
        );
        self.write("/etc/containers/storage.conf", &storage);
        // `podman run --rm` may find the container removed before it waits for it, and then
        // takes the exit code from the events: podman 3.4 waits forever if there are none.
        self.write(
            "/etc/containers/containers.conf",
            "[containers]\ndefault_ulimits = []\nnetns = \"none\"\n[engine]\nruntime = \"runc\"\n\
             cgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n",
        );
        self.import("podman");
    }

    fn import(&self, engine: &str) {
        let image = Image::new(Rootfs::Busybox).unwrap();
        let layer = self.path("layer.tar");
        fs::copy(image.layer(), &layer).unwrap();
        self.run(&format!("{engine} import {} busybox", layer.display()));
    }
}

/// Killed when dropped.
pub(super) struct Daemon(Child);

impl Daemon {
    /// Starts a daemon, and waits until a command succeeds.
    pub(super) fn start(mut command: Command, answer: impl Fn() -> Command) -> Self {
        let mut daemon = Self(command.spawn().unwrap());
        let answers = wait_until(|| {
            let ended = daemon.0.try_wait().unwrap();
            assert_eq!(ended, None, "{command:?} has ended");
            answer().output().unwrap().status.success()
        });
        assert!(answers, "{command:?} does not answer");
        daemon
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
