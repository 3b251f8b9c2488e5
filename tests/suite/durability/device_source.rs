//! The sources from which a container gets its device.

use std::fmt;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use harness::bundle::{Bundle, BundleBuilder, HookCommand, Stage};
use harness::demo_host::DemoHost;
use harness::rootfs::Rootfs;
use harness::systemd_host::SystemdHost;

/// The device that is given.
pub(super) const DEVICE: &str = "npu-3";
/// Its path in the container.
pub(super) const NODE: &str = "/dev/dummy-npu3";

/// A method of giving a device to a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeviceSource {
    pub(super) giver: Giver,
    pub(super) systemd: SystemdIs,
    /// Whether `boathook follow` runs, and the class is followed.
    pub(super) followed: bool,
}

/// The source of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Giver {
    /// The hook, which config.json has from the beginning.
    Hook,
    /// `boathook-runtime`, which adds the hook and the device's rule.
    Wrapper,
    /// `boathook attach`, once the container runs.
    Attach,
}

/// Whether the hook can talk to systemd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SystemdIs {
    Reached,
    /// Only through the system bus.
    OnTheBus,
    Hidden,
}

impl SystemdIs {
    /// What hides systemd from a hook as far as it is, and the argument for that.
    fn hiding(self) -> Option<(PathBuf, &'static str)> {
        let what = match self {
            Self::Reached => return None,
            Self::OnTheBus => "private",
            Self::Hidden => "all",
        };
        Some((SystemdHost::program("without-systemd"), what))
    }

    /// A hook that finds systemd so.
    pub(super) fn for_hook(self, hook: HookCommand) -> HookCommand {
        match self.hiding() {
            None => hook,
            Some((program, what)) => hook.behind(HookCommand::new(&program).arg(what)),
        }
    }
}

impl DeviceSource {
    /// A container that pauses, and requests the device.
    pub(super) fn bundle(self, host: &SystemdHost, demo: &DemoHost) -> BundleBuilder {
        let stage = Stage::CreateRuntime;
        let builder = Bundle::builder(Rootfs::Busybox);
        if self.giver == Giver::Attach {
            return builder;
        }
        let builder = builder.env(DemoHost::VARIABLE, DEVICE);
        let hook = host.hook(stage, &demo.config_file());
        match self.giver {
            Giver::Hook => builder.hook(stage, self.systemd.for_hook(hook)),
            Giver::Wrapper | Giver::Attach => builder,
        }
    }

    /// The hook, for callers that accept a program without arguments.
    pub(super) fn hook_program(self, demo: &DemoHost) -> Result<PathBuf> {
        let hook = SystemdHost::program("boathook-hook");
        let Some((hiding, what)) = self.systemd.hiding() else {
            return Ok(hook);
        };
        let script = format!(
            "#!/bin/sh\nexec {} {what} {} \"$@\"\n",
            hiding.display(),
            hook.display()
        );
        let file = demo.path().join("boathook-hook");
        fs::write(&file, script)?;
        fs::set_permissions(&file, Permissions::from_mode(0o755))?;
        Ok(file)
    }

    /// Writes the configuration: which runtime the wrapper calls and which hook
    /// it adds, and `more`.
    pub(super) fn configure(self, demo: &DemoHost, runtime: &Path, more: &str) -> Result<()> {
        let hook = self.hook_program(demo)?;
        let follow = self.follow();
        demo.write_config(&format!(
            "[runtime]\npath = {runtime:?}\nhook = {hook:?}\n{more}{follow}"
        ))
    }

    /// What the configuration has of it.
    pub(super) fn follow(self) -> &'static str {
        if self.followed {
            "\n[class.dummy-npu]\nfollow = true\n"
        } else {
            ""
        }
    }
}

impl fmt::Display for DeviceSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self.giver {
            Giver::Hook => "hook",
            Giver::Wrapper => "wrapper",
            Giver::Attach => "attach",
        })?;
        formatter.write_str(match self.systemd {
            SystemdIs::Reached => "",
            SystemdIs::OnTheBus => ", by the system bus",
            SystemdIs::Hidden => ", systemd hidden",
        })?;
        formatter.write_str(if self.followed { ", followed" } else { "" })
    }
}
