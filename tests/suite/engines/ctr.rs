//! containerd, by its own client `ctr` and the wrapper as `--runc-binary`.

use std::fs;
use std::process::{Child, Command};
use std::sync::Mutex;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use harness::engine_root::Generation;
use harness::image::{Image, name_of};
use harness::probe;
use harness::rootfs::Rootfs;
use harness::{binaries, scratch};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::case::Case;
use super::engine::{ContainerSettings, Engine, IMAGES, Running, printed};
use super::machine::{self, Machine};

/// The number of attempts to run a command in a container until it prints something.
const EXEC_ATTEMPTS: usize = 5;

/// Why there is nothing to see of the writable layer.
pub(super) const NO_DIFF: &str = "containerd has no command like docker's diff";

/// A containerd of its own.
pub(super) struct Containerd {
    pub(super) machine: Machine,
    daemon: Mutex<Child>,
}

pub(crate) fn missing(generation: Generation) -> Option<String> {
    machine::missing(generation, &["containerd", "ctr", "runc"])
}

impl Containerd {
    /// Starts it on a machine that has its configuration.
    pub(super) fn start(machine: Machine) -> Result<Self> {
        let daemon = Mutex::new(start_daemon(&machine)?);
        Ok(Containerd { machine, daemon })
    }

    /// Kills the daemon and starts it again. Its containers keep running.
    pub(super) fn restart(&self) -> Result<()> {
        let mut daemon = self.daemon.lock().unwrap();
        kill_inside(&mut daemon)?;
        *daemon = start_daemon(&self.machine)?;
        Ok(())
    }

    /// The settings without which it would use the machine's directories, for
    /// configuration version 2.
    pub(super) fn settings(machine: &Machine) -> String {
        format!(
            "version = 2\nroot = {:?}\nstate = {:?}\n[grpc]\naddress = {:?}\n\
             [plugins.\"io.containerd.internal.v1.opt\"]\npath = {:?}\n",
            machine.path("root"),
            machine.path("state"),
            machine.path("socket"),
            machine.path("opt"),
        )
    }

    /// Adds the image of a root file system.
    pub(super) fn import(&self, rootfs: Rootfs) -> Result<()> {
        let archive = Image::new(rootfs)?;
        let command = [probe::PATH, probe::PAUSE];
        let archive_file = archive.oci_archive(&name_of(rootfs), &command)?;
        let mut import = self.ctr();
        printed(import.args(["images", "import"]).arg(archive_file)).map(drop)
    }

    /// `ctr` where CRI has its containers and images.
    pub(super) fn ctr(&self) -> Command {
        client(&self.machine)
    }
}

fn client(machine: &Machine) -> Command {
    let mut command = machine.private.command("ctr");
    command
        .arg("--address")
        .arg(machine.path("socket"))
        .args(["--namespace", "k8s.io"]);
    command
}

fn start_daemon(machine: &Machine) -> Result<Child> {
    let mut daemon = machine.private.command("containerd");
    let ready = || printed(client(machine).arg("version")).is_ok();
    machine.start("containerd", &mut daemon, ready)
}

/// The engine for `ctr`.
pub(super) struct Ctr(Containerd);

impl Ctr {
    pub(super) fn machine(&self) -> &Machine {
        &self.0.machine
    }

    /// A containerd with images.
    pub(super) fn new(generation: Generation) -> Result<Self> {
        let machine = Machine::new(generation, "runc")?;
        let settings = Containerd::settings(&machine);
        machine.write("/etc/containerd/config.toml", &settings)?;
        let containerd = Containerd::start(machine)?;
        for rootfs in IMAGES {
            containerd.import(rootfs)?;
        }
        Ok(Self(containerd))
    }

    fn task(&self, subcommand: &str) -> Command {
        let mut command = self.0.ctr();
        command.args(["tasks", subcommand]);
        command
    }
}

impl Engine for Ctr {
    fn lacks(&self, case: Case) -> Option<&'static str> {
        match case {
            Case::OrdinaryUser => Some("ctr run of containerd 1.6 has no option for the user"),
            // Its options for the process's files replace those for the runtime.
            Case::UserNamespace => Some("ctr run forgets --runc-binary when it is given --uidmap"),
            Case::WritableLayer => Some(NO_DIFF),
            _ => None,
        }
    }

    fn start(&self, wanted: &ContainerSettings) -> Result<Box<dyn Running + '_>> {
        let number = scratch::number();
        let container = Container {
            engine: self,
            id: format!("test-{number}"),
        };
        let mut command = self.0.ctr();
        command
            .args(["run", "--detach", "--runc-binary"])
            .arg(binaries::program("boathook-runtime")?)
            .arg("--cgroup")
            .arg(self.0.machine.parent.child(&container.id));
        if let Some(devices) = &wanted.devices {
            command.arg(format!("--env=DUMMY_VISIBLE_DEVICES={devices}"));
        }
        if wanted.readonly {
            command.arg("--read-only");
        }
        printed(command.arg(name_of(wanted.image)).arg(&container.id))?;
        Ok(Box::new(container))
    }
}

struct Container<'a> {
    engine: &'a Ctr,
    id: String,
}

impl Container<'_> {
    /// Ends its process and waits for the end.
    fn stop(&self) -> Result<()> {
        let mut kill = self.engine.task("kill");
        printed(kill.args(["--signal", "SIGKILL", &self.id]))?;
        for _ in 0..200 {
            // It is refused as long as the process is there.
            if printed(self.engine.task("delete").arg(&self.id)).is_ok() {
                return Ok(());
            }
            sleep(Duration::from_millis(20));
        }
        printed(self.engine.task("delete").arg(&self.id))
            .map(drop)
            .context("the container does not end")
    }
}

impl Running for Container<'_> {
    fn exec(&self, args: &[String]) -> Result<String> {
        // On a busy machine ctr may end before it has copied what a short
        // command printed. Each of the tests' commands prints something.
        let mut said = String::new();
        for _ in 0..EXEC_ATTEMPTS {
            let number = scratch::number();
            let mut command = self.engine.task("exec");
            command.args(["--exec-id", &format!("exec-{number}"), &self.id]);
            said = printed(command.args(args))?;
            if !said.is_empty() {
                break;
            }
        }
        Ok(said)
    }

    fn restart(&self) -> Result<()> {
        self.stop()?;
        let mut start = self.engine.task("start");
        printed(start.args(["--detach", &self.id])).map(drop)
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        // One that was refused has no process, and may not be there at all.
        let _ = self.stop();
        let mut delete = self.engine.0.ctr();
        let _ = printed(delete.args(["containers", "delete", &self.id]));
    }
}

/// Kills the process that a child of this test started in other namespaces, as the OOM killer
/// would. The child, nsenter, ends with it.
pub(super) fn kill_inside(outside: &mut Child) -> Result<()> {
    let id = outside.id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"))?;
    let inside: i32 = children.trim().parse().context("it has no process")?;
    kill(Pid::from_raw(inside), Signal::SIGKILL)?;
    outside.wait()?;
    Ok(())
}
