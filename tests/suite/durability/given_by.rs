//! Who gives a container its device.

use std::fmt;

use harness::bundle::{Bundle, BundleBuilder, HookCommand, Stage};
use harness::demo_host::DemoHost;
use harness::rootfs::Rootfs;
use harness::systemd_host::SystemdHost;
use oci_spec::runtime::{LinuxDeviceCgroupBuilder, LinuxDeviceType};

/// The index of the device that is given.
pub(super) const INDEX: usize = 3;
/// The device's path in the container.
pub(super) const NODE: &str = "/dev/dummy-npu3";

/// Ways to give a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GivenBy {
    /// The hook alone.
    Hook,
    /// A rule in config.json from the beginning, as the wrapper writes it.
    Spec,
    /// The hook, on a host where it does not reach systemd.
    HookWithoutSystemd,
}

impl GivenBy {
    /// A container that pauses, with the device.
    pub(super) fn container(self, host: &SystemdHost, demo: &DemoHost) -> BundleBuilder {
        let builder = Bundle::builder(Rootfs::Busybox);
        let stage = Stage::CreateRuntime;
        let hook = host.hook(stage, &demo.config_file());
        let asking = |hook| builder.clone().hook(stage, hook);
        let asking = |hook| asking(hook).env(DemoHost::VARIABLE, &format!("npu-{INDEX}"));
        match self {
            Self::Hook => asking(hook),
            Self::HookWithoutSystemd => asking(hook.behind(without_systemd())),
            Self::Spec => {
                let device = demo.device(INDEX);
                let rule = LinuxDeviceCgroupBuilder::default()
                    .allow(true)
                    .typ(LinuxDeviceType::C)
                    .major(device.major as i64)
                    .minor(device.minor as i64)
                    .access("rwm");
                builder
                    .bind(&demo.node(INDEX), NODE)
                    .device_rule(rule.build().unwrap())
            }
        }
    }
}

/// What hides systemd from a hook.
pub(super) fn without_systemd() -> HookCommand {
    HookCommand::new(&SystemdHost::program("without-systemd"))
}

impl fmt::Display for GivenBy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Hook => "hook",
            Self::Spec => "spec",
            Self::HookWithoutSystemd => "hook, systemd hidden",
        })
    }
}
