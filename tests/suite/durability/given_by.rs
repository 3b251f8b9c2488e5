//! Who gives a container its device.

use std::fmt;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use anyhow::Result;
use harness::bundle::{Bundle, BundleBuilder, HookCommand, Stage};
use harness::demo_host::DemoHost;
use harness::rootfs::Rootfs;
use harness::systemd_host::{Runtime, SystemdHost};

/// The device that is given.
const DEVICE: &str = "npu-3";
/// Its path in the container.
pub(super) const NODE: &str = "/dev/dummy-npu3";

/// A way to give a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GivenBy {
    pub(super) giver: Giver,
    pub(super) systemd: SystemdIs,
}

/// Who gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Giver {
    /// The hook, which config.json has from the beginning.
    Hook,
    /// `boathook-runtime`, which adds the hook and the device's rule.
    Wrapper,
}

/// Whether the hook can talk to systemd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SystemdIs {
    Reached,
    Hidden,
}

impl GivenBy {
    /// A container that pauses, and asks for the device.
    pub(super) fn bundle(self, host: &SystemdHost, demo: &DemoHost) -> BundleBuilder {
        let stage = Stage::CreateRuntime;
        let builder = Bundle::builder(Rootfs::Busybox).env(DemoHost::VARIABLE, DEVICE);
        let hook = host.hook(stage, &demo.config_file());
        match (self.giver, self.systemd) {
            (Giver::Hook, SystemdIs::Reached) => builder.hook(stage, hook),
            (Giver::Hook, SystemdIs::Hidden) => builder.hook(stage, hook.behind(without_systemd())),
            (Giver::Wrapper, _) => builder,
        }
    }

    /// Tells the wrapper which runtime to call, and which hook to add.
    pub(super) fn configure_wrapper(self, demo: &DemoHost, runtime: Runtime) -> Result<()> {
        let boathook = SystemdHost::program("boathook");
        let hook = match self.systemd {
            SystemdIs::Reached => boathook,
            SystemdIs::Hidden => {
                // The wrapper takes a program without arguments.
                let hide = SystemdHost::program("without-systemd");
                let script = format!(
                    "#!/bin/sh\nexec {} {} \"$@\"\n",
                    hide.display(),
                    boathook.display()
                );
                let file = demo.path().join("boathook");
                fs::write(&file, script)?;
                fs::set_permissions(&file, Permissions::from_mode(0o755))?;
                file
            }
        };
        let runtime = runtime.program.path();
        demo.write_config(&format!("[runtime]\npath = {runtime:?}\nhook = {hook:?}\n"))
    }
}

/// What hides systemd from a hook.
pub(super) fn without_systemd() -> HookCommand {
    HookCommand::new(&SystemdHost::program("without-systemd"))
}

impl fmt::Display for GivenBy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self.giver {
            Giver::Hook => "hook",
            Giver::Wrapper => "wrapper",
        })?;
        match self.systemd {
            SystemdIs::Reached => Ok(()),
            SystemdIs::Hidden => formatter.write_str(", systemd hidden"),
        }
    }
}
