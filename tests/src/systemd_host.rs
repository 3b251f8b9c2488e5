//! A host that runs systemd, in a container of runc.
//!
//! The systemd cgroup driver of a runtime, and the effect of systemd on the devices of a running
//! container, can only be tested where systemd is process 1. Therefore a small distribution is booted
//! in a container that may do everything that a host may. It has its own cgroups, processes and
//! network, and its root file system is read-only. Dropping the value removes all of it.

mod config;
mod container;
mod containerd;
mod root;
mod runtime;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

pub use container::Container;
pub use containerd::Containerd;
pub use root::Distribution;
pub use runtime::{Driver, Program, Runtime};

use crate::bundle::{HookCommand, Stage};
use crate::captured::Captured;
use crate::cgroup_view::CgroupView;
use crate::patience::PATIENCE;
use crate::runc::Runc;
use crate::{binaries, cgroup_parent, privilege, scratch};

/// The directory in the host with the harness's programs.
const PROGRAMS: &str = "/opt";
/// The directory in the host with the programs of a release ([`binaries::RELEASED`]).
const RELEASED: &str = "/srv";

/// A booted host. Dropping the value stops and removes it.
#[derive(Debug)]
pub struct SystemdHost {
    runc: Runc,
    directory: TempDir,
    id: String,
}

impl SystemdHost {
    /// Returns the reason why a host with this view of cgroups cannot be booted, or `None` if it
    /// can.
    pub fn missing(distribution: Distribution, view: CgroupView) -> Option<String> {
        privilege::missing_for_runc(view).or_else(|| distribution.missing())
    }

    /// Boots a host, and waits until systemd reports that it is running.
    pub fn boot(distribution: Distribution, view: CgroupView) -> Result<Self> {
        let number = scratch::number();
        let host = Self {
            runc: Runc::new(view)?,
            directory: scratch::directory("systemd")?,
            id: format!("boathook-host-{}-{number}", std::process::id()),
        };
        for directory in config::CONFIGURED {
            fs::create_dir_all(host.configuration().join(directory))?;
        }
        let spec = config::spec(view, &distribution.directory()?, host.configuration())?;
        let file = host.directory.path().join("config.json");
        fs::write(&file, serde_json::to_vec_pretty(&spec)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
        let mut command = host.runc.command("run")?;
        command
            .args(["--detach", "--bundle"])
            .arg(host.directory.path())
            .arg(&host.id);
        Captured::run(&mut command)?.success()?;
        host.wait_until_running()?;
        Ok(host)
    }

    /// Returns the view of cgroups that the host has.
    pub fn view(&self) -> CgroupView {
        self.runc.view()
    }

    /// Returns the directory whose subdirectories `etc/boathook` and `etc/containerd` are those of
    /// the host.
    pub fn configuration(&self) -> &Path {
        self.directory.path()
    }

    /// Returns whether the host can change a container's share of the processors. If the machine's
    /// controllers are in v1, a host with a view of v2 cannot.
    pub fn has_cpu_controller(&self) -> Result<bool> {
        if self.view() == CgroupView::V1 {
            return Ok(true);
        }
        let controllers = self.run("cat", &["/sys/fs/cgroup/cgroup.controllers"])?;
        Ok(controllers.split_whitespace().any(|name| name == "cpu"))
    }

    /// Returns a command that runs `program` in the host as root. It must not leave processes
    /// behind that keep its output open. For such commands there is [`SystemdHost::run_silently`].
    pub fn command(&self, program: impl AsRef<Path>) -> Result<Command> {
        let mut command = self.runc.command("exec")?;
        command.arg(&self.id).arg(program.as_ref());
        Ok(command)
    }

    /// Runs a command in the host, which must succeed, and returns its output.
    pub fn run(&self, program: &str, args: &[&str]) -> Result<String> {
        let ran = Captured::run(self.command(program)?.args(args))?;
        Ok(ran.success()?.stdout)
    }

    /// Runs a command in the host that leaves processes behind, as `runc create` does. Its output
    /// goes to a file of the host, so that these processes do not keep the test's output open.
    pub fn run_silently(&self, args: &[String]) -> Result<()> {
        const SCRIPT: &str = r#""$@" </dev/null >/run/said 2>&1 || { cat /run/said >&2; exit 1; }"#;
        let mut command = self.command("/bin/sh")?;
        command.args(["-c", SCRIPT, "sh"]).args(args);
        Captured::run(&mut command)?.success().map(|_| ())
    }

    /// Restricts the devices of a slice to the usual ones, and to the creation of device nodes,
    /// which runtimes grant to every container. Other rules of the slice are removed.
    pub fn close_slice(&self) -> Result<()> {
        let policy = [
            "DevicePolicy=closed",
            "DeviceAllow=",
            "DeviceAllow=char-* m",
        ];
        let slice = ["set-property", "--runtime", runtime::CLOSED_SLICE];
        self.run("systemctl", &[&slice[..], &policy[..]].concat())
            .map(drop)
    }

    /// Returns the entry of `boathook-hook` for containers in this host.
    pub fn hook(&self, stage: Stage, config: &Path) -> HookCommand {
        let hook = HookCommand::new(&Self::program("boathook-hook"));
        hook.arg("--config")
            .arg(&config.display().to_string())
            .arg(stage.subcommand())
    }

    /// Returns the path in the host of one of the built programs.
    pub fn program(name: &str) -> PathBuf {
        let is_released = binaries::RELEASED.contains(&name);
        Path::new(if is_released { RELEASED } else { PROGRAMS }).join(name)
    }

    /// Waits until systemd reports that the host is running.
    pub fn wait_until_running(&self) -> Result<()> {
        let start = Instant::now();
        loop {
            let mut command = self.command("systemctl")?;
            let asked = Captured::run(command.arg("is-system-running"))?;
            if asked.stdout.trim() == "running" {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                let (said, error) = (asked.stdout.trim(), asked.stderr.trim());
                let failed = self.run("systemctl", &["--failed", "--no-legend"]);
                bail!("systemd does not run after {PATIENCE:?}: {said} {error} {failed:?}");
            }
            sleep(Duration::from_millis(50));
        }
    }

    /// Stops the host, and describes what it left behind on the machine. The list must be empty.
    pub fn stop(self) -> Vec<String> {
        let id = self.id.clone();
        drop(self);
        let left = cgroup_parent::directories_named(&id);
        left.iter()
            .map(|path| format!("cgroup {}", path.display()))
            .collect()
    }
}

impl Drop for SystemdHost {
    fn drop(&mut self) {
        self.runc.delete(&self.id);
    }
}
