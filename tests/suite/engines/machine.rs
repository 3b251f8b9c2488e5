//! The machine that an engine must itself.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use harness::binaries;
use harness::cgroup_parent::CgroupParent;
use harness::demo_host::DemoHost;
use harness::engine_root::Generation;
use harness::patience::PATIENCE;
use harness::private_host::PrivateHost;
use harness::scratch;
use runtime_config::{self as config, HostRoot, InstallOptions};
use tempfile::TempDir;

/// A private host with devices and with Boathook's configuration. Parts are
/// dropped in this order: first whatever runs.
pub(crate) struct Machine {
    pub(crate) private: PrivateHost,
    pub(crate) generation: Generation,
    pub(super) parent: CgroupParent,
    pub(crate) devices: DemoHost,
    pub(super) files: TempDir,
}

impl Machine {
    /// A machine with this generation of engines, whose wrapper runs before this
    /// runtime.
    pub(super) fn new(generation: Generation, real_runtime: &str) -> Result<Self> {
        let machine = Machine {
            private: PrivateHost::with_generation(generation)?,
            generation,
            parent: CgroupParent::new(),
            devices: DemoHost::new()?,
            files: scratch::directory("engine")?,
        };
        let runtime = generation
            .program(real_runtime)
            .context("the runtime is gone")?;
        let more = format!("[runtime]\npath = {runtime:?}\n");
        machine.devices.write_config(&more)?;
        let text = fs::read_to_string(machine.devices.config_file())?;
        machine.write("/etc/boathook/config.toml", &text)?;
        Ok(machine)
    }

    /// Writes one of the machine's files in /etc.
    pub(crate) fn write(&self, path: &str, text: &str) -> Result<()> {
        let file = self.private.file(path);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&file, text).with_context(|| format!("cannot write {path}"))
    }

    /// Configures an engine, as `boathook-init install` does.
    pub(super) fn install(&self, engine: config::Engine, base_spec: Option<String>) -> Result<()> {
        self.install_as(engine, base_spec, &[])
    }

    /// The same with more names of the runtime, as `--as` has them.
    pub(super) fn install_as(
        &self,
        engine: config::Engine,
        base_spec: Option<String>,
        additional_names: &[&str],
    ) -> Result<()> {
        let options = InstallOptions {
            additional_names: additional_names.iter().map(ToString::to_string).collect(),
            hook_path: binaries::program("boathook-hook")?,
            runtime_path: binaries::program("boathook-runtime")?,
            set_default: false,
            real_runtime_path: None,
            base_spec,
        };
        let host = HostRoot::open(self.private.root())?;
        let plan = engine.plan_install(&engine.read_snapshot(&host, None)?, None, &options)?;
        plan.changes
            .iter()
            .try_for_each(|change| change.apply(&host))?;
        Ok(())
    }

    /// The cgroup that the engine's containers are in.
    pub(crate) fn cgroup_parent(&self) -> PathBuf {
        self.parent.path()
    }

    /// A path for a file of this engine.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// Starts a daemon and waits until `ready` succeeds. It ends with the
    /// machine. What it prints is in `NAME.log`.
    pub(super) fn start(
        &self,
        name: &str,
        daemon: &mut Command,
        mut ready: impl FnMut() -> bool,
    ) -> Result<Child> {
        let log = self.path(&format!("{name}.log"));
        let file = File::create(&log)?;
        let mut child = daemon
            // What its shims leave when the machine ends goes with it.
            .env("TMPDIR", "/run")
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()?;
        let start = Instant::now();
        while !ready() {
            if let Some(status) = child.try_wait()? {
                bail!("the daemon ended ({status}): {}", tail(&log));
            }
            if start.elapsed() > PATIENCE {
                bail!("the daemon does not answer: {}", tail(&log));
            }
            sleep(Duration::from_millis(50));
        }
        Ok(child)
    }
}

/// Why these programs of a generation cannot be run, if one cannot.
pub(super) fn missing(generation: Generation, programs: &[&str]) -> Option<String> {
    let absent = || {
        let absent = programs
            .iter()
            .find(|name| generation.program(name).is_none());
        absent.map(|name| format!("needs {name}"))
    };
    harness::privilege::missing_for_engines()
        .or_else(|| generation.missing())
        .or_else(absent)
}

fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().rev().take(5).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}
