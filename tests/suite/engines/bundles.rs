//! An OCI runtime by itself, behind the wrapper.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};
use harness::binaries;
use harness::bundle::Bundle;
use harness::captured::Captured;
use harness::demo_host::DemoHost;
use harness::engine_root::Generation;
use serde::Deserialize;

use super::case::Case;
use super::engine::{ContainerSettings, Engine, Running, printed};
use super::machine::{self, Machine};

/// The path at which crun and systemd expect a second hierarchy beside those of cgroup v1.
const UNIFIED: &str = "/sys/fs/cgroup/unified";

/// A runtime that is given bundles.
pub(crate) struct Bundles {
    machine: Machine,
}

pub(crate) fn missing(generation: Generation, runtime: &str) -> Option<String> {
    machine::missing(generation, &[runtime])
}

/// Leaves cgroup v1 alone: crun refuses a hybrid of v1 and v2.
pub(super) fn leave_hybrid(machine: &Machine) -> Result<()> {
    if machine.private.file(UNIFIED).join("cgroup.procs").exists() {
        printed(machine.private.command("umount").arg(UNIFIED))?;
    }
    Ok(())
}

impl Bundles {
    /// The runtime of this name.
    pub(crate) fn new(generation: Generation, runtime: &str) -> Result<Self> {
        let machine = Machine::new(generation, runtime)?;
        leave_hybrid(&machine)?;
        Ok(Self { machine })
    }

    pub(super) fn machine(&self) -> &Machine {
        &self.machine
    }

    fn command(&self, subcommand: &str) -> Result<Command> {
        let wrapper = binaries::program("boathook-runtime")?;
        let mut command = self.machine.private.command(wrapper);
        command
            .arg("--root")
            .arg(self.machine.path("state"))
            .arg(subcommand);
        Ok(command)
    }
}

impl Engine for Bundles {
    fn lacks(&self, case: Case) -> Option<&'static str> {
        (case == Case::WritableLayer)
            .then_some("a runtime by itself has no layers, nor a command to compare them")
    }

    fn start(&self, wanted: &ContainerSettings) -> Result<Box<dyn Running + '_>> {
        let mut builder = Bundle::builder(wanted.image);
        if let Some(devices) = &wanted.devices {
            builder = builder.env(DemoHost::VARIABLE, devices);
        }
        if wanted.readonly {
            builder = builder.readonly();
        }
        if let Some(user) = wanted.user {
            builder = builder.user(user, user);
        }
        if wanted.user_namespace {
            builder = builder.user_namespace();
        }
        // The id is not known before the bundle is built.
        let bundle = builder
            .cgroups_path(self.machine.parent.unique_child())
            .build()?;
        let container = Container {
            engine: self,
            bundle,
            user: wanted.user.unwrap_or(0),
        };
        container.start()?;
        Ok(Box::new(container))
    }
}

struct Container<'a> {
    engine: &'a Bundles,
    bundle: Bundle,
    user: u32,
}

/// The state that the runtimes print.
#[derive(Deserialize)]
struct State {
    status: String,
}

impl Container<'_> {
    /// As engines do it: `create`, then `start`.
    fn start(&self) -> Result<()> {
        let mut create = self.engine.command("create")?;
        create.arg("--bundle").arg(self.bundle.directory());
        printed(create.arg(self.bundle.id()))?;
        printed(self.engine.command("start")?.arg(self.bundle.id()))?;
        let state = printed(self.engine.command("state")?.arg(self.bundle.id()))?;
        let State { status } = serde_json::from_str(&state)?;
        if status != "running" {
            bail!("the container is {status}");
        }
        Ok(())
    }

    fn delete(&self) -> Result<Captured> {
        let mut delete = self.engine.command("delete")?;
        Captured::run(delete.args(["--force", self.bundle.id()]))
    }
}

impl Running for Container<'_> {
    fn exec(&self, args: &[String]) -> Result<String> {
        let build = || -> Result<Command> {
            let mut command = self.engine.command("exec")?;
            // crun takes root if it is not told.
            command.arg(format!("--user={}", self.user));
            command.arg(self.bundle.id()).args(args);
            Ok(command)
        };
        // runc of Ubuntu 26.04 sometimes misses that its process has ended: the process is a zombie,
        // and `runc exec` waits for ever (2 of 73 runs). It is called once more then.
        match Captured::run_within(Duration::from_secs(30), &mut build()?) {
            Ok(ended) => Ok(ended.success()?.stdout),
            Err(_) => printed(&mut build()?),
        }
    }

    /// With the same bundle, which the wrapper has written to.
    fn restart(&self) -> Result<()> {
        self.delete()?.success()?;
        self.start()
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        // It may not be there: then the runtime complains, and rightly.
        let _ = self.delete();
    }
}
