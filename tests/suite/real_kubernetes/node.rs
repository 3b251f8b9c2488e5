//! A node that is also the control plane, in namespaces of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use harness::captured::Captured;
use harness::cgroup_parent::CgroupParent;
use harness::engine_root;
use harness::image::Image;
use harness::private_host::PrivateHost;
use harness::rootfs::Rootfs;
use harness::{probe, scratch};
use tempfile::TempDir;

use super::daemons::{self, CONFIG, Daemon};
use super::engine::Engine;
use super::release::MinorVersion;

/// The node's name.
pub(super) const NAME: &str = "node-0";

/// The image of the pods.
pub(super) const BUSYBOX: &str = "busybox:1.37";

/// The time that anything in the cluster may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(180);

/// Parts are dropped in this order: first whatever runs.
pub(super) struct Node {
    host: PrivateHost,
    cgroup: CgroupParent,
    pub(super) engine: Engine,
    pub(super) version: MinorVersion,
    /// The daemons' logs, and files that commands read.
    files: TempDir,
    /// Kubernetes' programs.
    programs: PathBuf,
}

impl Node {
    /// A cluster that is ready, with nothing of Boathook but its images: those of the
    /// release in `release`.
    pub(super) fn start(programs: &Path, release: &Path, engine: Engine) -> Result<Self> {
        let node = Self {
            host: PrivateHost::with_root(Some(&engine_root::of_a_node()?), &[programs, release])?,
            cgroup: CgroupParent::new(),
            engine,
            version: MinorVersion::read(programs)?,
            files: scratch::directory("kubernetes")?,
            programs: programs.to_owned(),
        };
        node.prepare()?;
        node.start_daemon(engine.daemon())?;
        for daemon in Daemon::OF_KUBERNETES {
            node.start_daemon(daemon)?;
        }
        node.import_images(release)?;
        node.until("the node is ready", || {
            let ready = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
            Ok(node.kubectl(&["get", "node", NAME, "-o", ready])? == "True")
        })?;
        node.until("there are ServiceAccounts", || {
            node.kubectl(&["get", "serviceaccount", "default"])
                .map(|_| true)
        })?;
        Ok(node)
    }

    /// Mounts, addresses and configuration.
    fn prepare(&self) -> Result<()> {
        let top = self.cgroup.path();
        for hierarchy in cgroup_hierarchies()? {
            fs::create_dir_all(hierarchy.join(top.strip_prefix("/")?))?;
        }
        for (path, text) in daemons::configuration(self.engine, &top, self.version) {
            self.write(path, &text)?;
        }
        self.shell(daemons::PREPARATION)?;
        self.shell(self.engine.preparation()).map(drop)
    }

    /// Returns the path by which this process reaches a file of the node.
    pub(super) fn file(&self, path: &str) -> PathBuf {
        self.host.file(path)
    }

    /// Writes one of the node's files.
    pub(super) fn write(&self, path: &str, text: &str) -> Result<()> {
        let file = self.host.file(path);
        fs::create_dir_all(file.parent().context("a file is in a directory")?)?;
        fs::write(&file, text).with_context(|| format!("cannot write {path}"))
    }

    /// Starts a daemon, and waits until it answers.
    pub(super) fn start_daemon(&self, daemon: Daemon) -> Result<()> {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log(daemon))?;
        self.command(daemon.program())
            .args(daemon.arguments())
            // With it the kubelet's probes of pods would go through a proxy.
            .env_remove("HTTP_PROXY")
            .env_remove("http_proxy")
            .env_remove("HTTPS_PROXY")
            .env_remove("https_proxy")
            .env("TMPDIR", "/run")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let ready = daemon.ready();
        self.until(&format!("{} answers", daemon.program()), || {
            Ok(ready.is_empty() || self.shell(ready).is_ok())
        })
        .with_context(|| tail(&self.log(daemon)))
    }

    /// Ends a daemon as `signal` does, and starts it again.
    pub(super) fn restart(&self, daemon: Daemon, signal: &str) -> Result<()> {
        self.end(daemon, signal)?;
        self.start_daemon(daemon)
    }

    /// Ends the kubelet, the engine, all containers and the plugin, empties the directories of
    /// `/run` that they use, and starts the engine, then the services that are before the kubelet,
    /// and the kubelet again, as a reboot does. The boot's id stays the same.
    pub(super) fn reboot(&self, start_services: impl FnOnce() -> Result<()>) -> Result<()> {
        self.end(Daemon::Kubelet, "TERM")?;
        let top = self.cgroup.path();
        self.shell(&format!(
            "killall() {{ kill -KILL \"$@\" 2>/dev/null || true; }}
             killall $(pidof containerd-shim-runc-v2 conmon boathook-plugin)
             find /sys/fs/cgroup -path '*{}/kubepods/*' -name cgroup.procs -exec cat {{}} + | sort -u |
                 while read -r pid; do [ $pid = 0 ] || killall $pid; done",
            top.display()
        ))?;
        self.end(self.engine.daemon(), "KILL")?;
        // A kubelet that finds cgroups without containers tries for three seconds to read each one.
        self.until("no cgroup of a container is left", || {
            let cgroups = format!(
                "/sys/fs/cgroup -depth -path '*{}/kubepods/*' -type d",
                top.display()
            );
            let left = self.shell(&format!(
                "find {cgroups} -exec rmdir {{}} + 2>/dev/null || true; find {cgroups}"
            ))?;
            Ok(left.is_empty())
        })?;
        self.shell(
            "grep -o ' /run/\\(containerd\\|crio\\|containers\\|netns\\)/[^ ]*' /proc/self/mountinfo |
                 sort -r | while read -r path; do umount -l $path 2>/dev/null || true; done
             rm -rf /run/containerd /run/crio /run/containers /run/netns /run/cdi /run/boathook",
        )?;
        self.start_daemon(self.engine.daemon())?;
        start_services()?;
        self.start_daemon(Daemon::Kubelet)
    }

    /// Starts a script on the node, for whose end nobody waits.
    pub(super) fn start_script(&self, script: &str) -> Result<()> {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.files.path().join("scripts.log"))?;
        self.command("sh")
            .args(["-euc", script])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        Ok(())
    }

    /// Ends a daemon as `signal` does, and waits for its end.
    pub(super) fn end(&self, daemon: Daemon, signal: &str) -> Result<()> {
        let ended = self.signal(daemon.program(), signal)?;
        self.until("the daemon has ended", || {
            Ok(ended
                .iter()
                .all(|pid| !self.host.file(&format!("/proc/{pid}")).exists()))
        })
    }

    /// Sends a signal to the processes with this program's name, and gives their ids.
    pub(super) fn signal(&self, program: &str, signal: &str) -> Result<Vec<String>> {
        let found = self.processes(program)?;
        self.shell(&format!("kill -{signal} {}", found.join(" ")))?;
        Ok(found)
    }

    /// Returns the ids of the processes with this program's name.
    pub(super) fn processes(&self, program: &str) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for process in fs::read_dir(self.host.file("/proc"))?.flatten() {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            // The kernel keeps 15 characters of it (proc(5)).
            if name.trim_end() == program.get(..15).unwrap_or(program) {
                found.push(process.file_name().to_string_lossy().into_owned());
            }
        }
        if found.is_empty() {
            bail!("no process of {program}");
        }
        Ok(found)
    }

    fn log(&self, daemon: Daemon) -> PathBuf {
        self.files
            .path()
            .join(daemon.program())
            .with_extension("log")
    }

    /// A command on the node, where Kubernetes' programs come first.
    fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = self.host.command("env");
        let path = format!(
            "PATH={}:/usr/sbin:/usr/bin:/sbin:/bin",
            self.programs.display()
        );
        command
            .arg(path)
            .arg(format!("KUBECONFIG={CONFIG}"))
            // Not among the files that an installation may leave.
            .arg("KUBECACHEDIR=/run/kubectl")
            .arg(program.as_ref());
        command
    }

    /// Returns the output of a script on the node.
    pub(super) fn shell(&self, script: &str) -> Result<String> {
        let ran = Captured::run(self.command("sh").args(["-euc", script]))?;
        Ok(ran.success()?.stdout)
    }

    /// Returns the output of kubectl.
    pub(super) fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let ran = Captured::run(self.command("kubectl").args(arguments))?;
        Ok(ran.success()?.stdout)
    }

    /// The same with manifests as its input.
    pub(super) fn kubectl_with(&self, arguments: &[&str], manifests: &str) -> Result<String> {
        let mut command = self.command("kubectl");
        command.args(arguments).args(["--filename", "-"]);
        let ran = Captured::run_with_input(&mut command, manifests.as_bytes())?;
        Ok(ran.success()?.stdout)
    }

    /// Applies manifests.
    pub(super) fn apply(&self, manifests: &str) -> Result<()> {
        self.kubectl_with(&["apply"], manifests).map(drop)
    }

    /// Returns a kustomization of this tree, rendered outside of the cluster.
    pub(super) fn rendered(&self, directory: &Path) -> Result<String> {
        let mut command = Command::new(self.programs.join("kubectl"));
        Ok(Captured::run(command.arg("kustomize").arg(directory))?
            .success()?
            .stdout)
    }

    /// A new directory for files, which commands on the node find too.
    pub(super) fn directory(&self, name: &str) -> Result<PathBuf> {
        let directory = self.files.path().join(name);
        fs::create_dir_all(&directory)?;
        Ok(directory)
    }

    /// Waits until something is so, and gives the last error if it is not.
    pub(super) fn until(&self, what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
        let start = Instant::now();
        loop {
            let answer = is_so();
            if matches!(answer, Ok(true)) {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                return match answer {
                    Ok(_) => bail!("not after {} s: {what}", PATIENCE.as_secs()),
                    Err(error) => Err(error.context(format!("not so: {what}"))),
                };
            }
            sleep(Duration::from_millis(200));
        }
    }

    /// All that a node's files are to be compared by: names, kinds, owners, contents. The
    /// directory of CDI itself, in which other programs' files may be, and the hook's log
    /// stay until the next boot.
    pub(super) fn files(&self) -> Result<String> {
        self.shell(
            "{
                find /etc /opt /usr /srv /root -xdev -printf '%p %y %m %U:%G %l\\n'
                find /etc /opt -xdev -type f -exec sha256sum {} +
                ! [ -e /run/cdi ] || find /run/cdi -mindepth 1
            } | sort",
        )
    }

    fn import_images(&self, release: &Path) -> Result<()> {
        let pause = self.shell(self.engine.pause())?;
        let busybox = Image::new(Rootfs::Busybox)?;
        for (name, command) in [
            (format!("docker.io/library/{BUSYBOX}"), &["/bin/sh"][..]),
            (pause.trim().to_owned(), &[probe::PATH, probe::PAUSE]),
        ] {
            self.import(&busybox.oci_archive(&name, command)?, &name)?;
        }
        let version = env!("CARGO_PKG_VERSION");
        for image in ["boathook", "boathook-cluster"] {
            let name = image_name(image, version);
            self.import(&release.join(format!("{image}-{version}-image.tar")), &name)?;
        }
        Ok(())
    }

    /// Gives one of the project's images the tag `next`, too.
    pub(super) fn make_next(&self, image: &str) -> Result<()> {
        let [name, next] = [env!("CARGO_PKG_VERSION"), "next"].map(|tag| image_name(image, tag));
        self.shell(&self.engine.tag(&name, &next)).map(drop)
    }

    fn import(&self, archive: &Path, name: &str) -> Result<()> {
        let archive = archive.display().to_string();
        self.shell(&self.engine.import(&archive, name)).map(drop)
    }
}

/// Returns one object with these, which are in JSON. kubectl 1.27.4 reads a first document in JSON, and
/// none after it.
pub(super) fn list_objects(objects: &[String]) -> String {
    let items = objects.join(", ");
    format!("{{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": [{items}]}}")
}

/// As it is written where no registry is named.
fn image_name(image: &str, tag: &str) -> String {
    format!("docker.io/library/{image}:{tag}")
}

/// Returns the mount points of the machine's hierarchies.
fn cgroup_hierarchies() -> Result<Vec<PathBuf>> {
    let mounts = harness::mountinfo::of_self()?;
    let top = Path::new("/sys/fs/cgroup");
    Ok(mounts
        .into_iter()
        .filter(|mount| mount.mount_point.starts_with(top) && mount.fs_type.starts_with("cgroup"))
        .map(|mount| mount.mount_point)
        .collect())
}

fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().rev().take(8).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}
