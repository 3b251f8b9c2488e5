//! Containers of pods, which containerd runs for a kubelet.

use std::cell::{Cell, RefCell};
use std::fs;

use anyhow::{Context, Result};
use harness::cgroup_view::CgroupView;
use harness::cri::api::{LinuxContainerResources, PodSandboxConfig};
use harness::cri::{Pod, Record};
use harness::demo_host::DemoHost;
use harness::probe::{Questions, Report};
use harness::rootfs::Rootfs;
use harness::systemd_host::{Containerd, Distribution, Driver, SystemdHost};
use runtime_config::{Engine, HostRoot, InstallOptions};

use super::super::device_source::SystemdIs::{Hidden, Reached};
use super::super::device_source::{DEVICE, DeviceSource, Giver};
use super::super::event::Event;
use super::super::running_container::RunningContainer;
use super::super::table::{Fate, Row, Table};

const TABLE: Table = Table {
    kinds: ["cgroup", "engine", "device given by"],
    events: &[
        Event::DaemonReload,
        Event::DaemonReexec,
        Event::SetProperty,
        Event::CriUpdate,
        Event::EngineRestart,
        Event::ContainerRestart,
        Event::Replugged,
    ],
};

#[test]
fn devices_last_under_an_engine_as_documented() {
    super::compare(&TABLE, measured);
}

/// The rows of one view of cgroups; none if there is no host with it.
fn measured(view: CgroupView) -> Vec<Row> {
    let Some((host, demo)) = super::host("what an engine runs", Distribution::OfThisMachine, view)
    else {
        return Vec::new();
    };
    let row = |(driver, device_source): (Driver, DeviceSource)| {
        let kind = [
            super::version(view),
            format!("containerd, CRI, {driver}"),
            match device_source.giver {
                Giver::Hook => format!("{device_source} (base_runtime_spec)"),
                Giver::Wrapper | Giver::Attach => format!("{device_source} (BinaryName)"),
            },
        ];
        let fates = fates(&host, &demo, driver, device_source);
        let fates = fates.with_context(|| format!("{kind:?}; {}", demo.log()));
        Row {
            kind,
            fates: fates.unwrap(),
        }
    };
    let rows = kinds().into_iter().map(row).collect();
    assert_eq!(host.stop(), Vec::<String>::new());
    rows
}

/// Both ways with both drivers; without systemd where that may make a
/// difference.
fn kinds() -> Vec<(Driver, DeviceSource)> {
    let mut kinds = Vec::new();
    for (driver, systemd, followed) in [
        (Driver::Cgroupfs, Reached, false),
        (Driver::Cgroupfs, Reached, true),
        (Driver::Systemd, Reached, false),
        (Driver::Systemd, Reached, true),
        (Driver::Systemd, Hidden, false),
    ] {
        let source = |giver| DeviceSource {
            giver,
            systemd,
            followed,
        };
        kinds.extend([Giver::Hook, Giver::Wrapper].map(|giver| (driver, source(giver))));
    }
    kinds
}

/// A row: an engine for all of it.
fn fates(
    host: &SystemdHost,
    demo: &DemoHost,
    driver: Driver,
    device_source: DeviceSource,
) -> Result<Vec<Fate>> {
    let mut record = Record::new(&demo.path().join("checkpoint"));
    configure(host, demo, driver, device_source, &record)?;
    let containerd = Containerd::start(host)?;
    let (events, mut fates) = (TABLE.events, Vec::new());
    while fates.len() < events.len() {
        let number = u32::try_from(fates.len())?;
        let pod = Pod::new(number, Rootfs::Busybox).devices(Some(DEVICE));
        record.add(&pod)?;
        let container = OfPod::run(&containerd, driver, pod)?;
        super::go_through(events, host, demo, device_source, &container, &mut fates)?;
    }
    Ok(fates)
}

/// Configures the engine, as `boathook-init install` does, and writes the hook's
/// configuration.
fn configure(
    host: &SystemdHost,
    demo: &DemoHost,
    driver: Driver,
    device_source: DeviceSource,
    record: &Record,
) -> Result<()> {
    device_source.configure(demo, &Containerd::runtime(host)?, &record.config())?;
    let etc = host.configuration().join("etc");
    fs::copy(demo.config_file(), etc.join("boathook/config.toml"))?;

    let settings = Containerd::settings(host, driver)?;
    fs::write(etc.join("containerd/config.toml"), settings)?;
    let options = InstallOptions {
        hook_path: device_source.hook_program(demo)?,
        runtime_path: SystemdHost::program("boathook-runtime"),
        set_default: false,
        real_runtime_path: None,
        additional_names: Vec::new(),
        base_spec: match device_source.giver {
            Giver::Hook => Some(host.run("ctr", &["oci", "spec"])?),
            Giver::Wrapper | Giver::Attach => None,
        },
    };
    let (engine, files) = (Engine::Containerd, HostRoot::open(host.configuration())?);
    let plan = engine.plan_install(&engine.read_snapshot(&files, None)?, None, &options)?;
    plan.changes
        .iter()
        .try_for_each(|change| change.apply(&files))?;
    Ok(())
}

/// A pod's container. Its pod is removed when dropped.
struct OfPod<'a> {
    containerd: &'a Containerd<'a>,
    driver: Driver,
    pod: Pod,
    sandbox_config: PodSandboxConfig,
    sandbox: String,
    attempt: Cell<u32>,
    id: RefCell<String>,
}

impl<'a> OfPod<'a> {
    fn run(containerd: &'a Containerd<'a>, driver: Driver, pod: Pod) -> Result<Self> {
        // As the kubelet names it (pkg/kubelet/cm, cgroup_manager_linux.go).
        let parent = match driver {
            Driver::Cgroupfs => format!("/kubepods/besteffort/pod{}", pod.uid()),
            Driver::Systemd | Driver::SystemdInClosedSlice => {
                let uid = pod.uid().replace('-', "_");
                format!("kubepods-besteffort-pod{uid}.slice")
            }
        };
        let sandbox_config = pod.sandbox(&parent);
        let sandbox = containerd
            .client()?
            .run_sandbox(&sandbox_config, "boathook")?;
        let container = Self {
            containerd,
            driver,
            pod,
            sandbox_config,
            sandbox,
            attempt: Cell::new(0),
            id: RefCell::default(),
        };
        container.start()?;
        Ok(container)
    }

    fn start(&self) -> Result<()> {
        let client = self.containerd.client()?;
        let config = self.pod.container(self.attempt.get());
        self.attempt.set(self.attempt.get() + 1);
        let id = client.create(&self.sandbox, &self.sandbox_config, config)?;
        client.start(&id)?;
        self.id.replace(id);
        Ok(())
    }

    fn id(&self) -> String {
        self.id.borrow().clone()
    }
}

impl RunningContainer for OfPod<'_> {
    fn probe(&self, questions: &Questions) -> Result<Report> {
        let client = self.containerd.client()?;
        Report::parse(&client.exec(&self.id(), &questions.command()?)?)
    }

    fn unit(&self) -> Option<String> {
        let scope = || format!("cri-containerd-{}.scope", self.id());
        (self.driver != Driver::Cgroupfs).then(scope)
    }

    fn update(&self, cpu_shares: Option<u32>) -> Result<()> {
        let resources = LinuxContainerResources {
            cpu_shares: cpu_shares.map_or(0, i64::from),
            ..Default::default()
        };
        self.containerd.client()?.update(&self.id(), resources)
    }

    /// As the kubelet does: a new container in the same sandbox.
    fn restart(&self) -> Result<()> {
        self.containerd.client()?.remove(&self.id())?;
        self.start()
    }

    fn restart_engine(&self) -> Result<()> {
        self.containerd.restart()
    }
}

impl Drop for OfPod<'_> {
    fn drop(&mut self) {
        let client = self.containerd.client();
        if let Err(error) = client.and_then(|client| client.remove_sandbox(&self.sandbox)) {
            // Called while dropping: there is nobody to return it to.
            eprintln!("{error:#}");
        }
    }
}
