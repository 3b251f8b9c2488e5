//! containerd as the kubelet drives it: by CRI, with what a device plugin
//! allocated in the container's environment and annotations, and in the
//! kubelet's record.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use harness::cri::api::{ContainerConfig, PodSandboxConfig};
use harness::cri::{CriClient, Pod, Record};
use harness::demo_host::in_container;
use harness::engine_root::Generation;
use harness::image::name_of;
use harness::rootfs::Rootfs;

use super::case::Case;
use super::cdi;
use super::ctr::{Containerd, NO_DIFF};
use super::engine::{ContainerSettings, Engine, IMAGES, Running, printed};
use super::machine::Machine;

/// The way in which the handler `boathook` calls the hook.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// Its runtime is the wrapper.
    BinaryName,
    /// Every spec begins with the hook in it.
    BaseRuntimeSpec,
    /// It is in CDI specifications, whose devices the kubelet names. There is no handler.
    Cdi,
}

/// The second name of the handler, as `boathook-init install --as nvidia` configures it.
const VENDOR_HANDLER: &str = "nvidia";

/// The engine for CRI.
pub(crate) struct Cri {
    how: How,
    /// The name of the handler, or nothing for the default one.
    handler: &'static str,
    pub(super) client: CriClient,
    pub(super) containerd: Containerd,
    record: Mutex<Record>,
}

impl Cri {
    /// A containerd with the handler and with images.
    pub(crate) fn new(generation: Generation, how: How) -> Result<Self> {
        let machine = Machine::new(generation, "runc")?;
        let record = Record::new(&machine.path("checkpoint"));
        let config = std::fs::read_to_string(machine.devices.config_file())?;
        machine.write("/etc/boathook/config.toml", &(config + &record.config()))?;
        Self::configure(&machine, "")?;
        let base_spec = match how {
            How::BinaryName | How::Cdi => None,
            How::BaseRuntimeSpec => Some(printed(
                machine.private.command("ctr").args(["oci", "spec"]),
            )?),
        };
        match how {
            How::Cdi => cdi::generate(&machine, &[])?,
            How::BinaryName | How::BaseRuntimeSpec => {
                let engine = runtime_config::Engine::Containerd;
                machine.install_as(engine, base_spec, &[VENDOR_HANDLER])?;
            }
        }
        Self::start(machine, record, how)
    }

    /// Writes containerd's own configuration, with more lines for its part for CRI.
    pub(super) fn configure(machine: &Machine, more: &str) -> Result<()> {
        // Lowering a score takes CAP_SYS_RESOURCE, which a test machine may
        // lack. Nothing is to be pulled.
        let settings = Containerd::settings(machine)
            + &format!(
                "[plugins.\"io.containerd.grpc.v1.cri\"]\nrestrict_oom_score_adj = true\nsandbox_image = {:?}\n{more}",
                name_of(Rootfs::Busybox)
            );
        machine.write("/etc/containerd/config.toml", &settings)
    }

    /// Starts containerd on a machine that is configured, with images.
    pub(super) fn start(machine: Machine, record: Record, how: How) -> Result<Self> {
        let containerd = Containerd::start(machine)?;
        for rootfs in IMAGES {
            containerd.import(rootfs)?;
        }
        Ok(Self {
            how,
            handler: match how {
                How::BinaryName | How::BaseRuntimeSpec => "boathook",
                How::Cdi => "",
            },
            client: CriClient::connect(&containerd.machine.path("socket"))?,
            containerd,
            record: Mutex::new(record),
        })
    }

    /// The same for pods of the vendor's RuntimeClass.
    pub(super) fn with_vendor_handler(generation: Generation) -> Result<Self> {
        let handler = VENDOR_HANDLER;
        Ok(Self {
            handler,
            ..Self::new(generation, How::BinaryName)?
        })
    }

    /// Starts containerd on a machine whose configuration has the vendor's handler.
    pub(super) fn start_for_vendor(machine: Machine, record: Record) -> Result<Self> {
        let handler = VENDOR_HANDLER;
        Ok(Self {
            handler,
            ..Self::start(machine, record, How::BinaryName)?
        })
    }

    /// The machine that it must itself.
    pub(crate) fn machine(&self) -> &Machine {
        &self.containerd.machine
    }

    /// Records the allocation of a pod's container, and starts its sandbox.
    pub(super) fn run_pod(&self, pod: &Pod) -> Result<(PodSandboxConfig, String)> {
        let mut record = self.record.lock().ok().context("a test panicked")?;
        record.add(pod)?;
        drop(record);
        let of_pod = format!("pod{}", pod.uid());
        let parent = self.containerd.machine.parent.child(&of_pod);
        let config = pod.sandbox(&parent.display().to_string());
        let sandbox = self.client.run_sandbox(&config, self.handler)?;
        Ok((config, sandbox))
    }
}

impl Engine for Cri {
    fn lacks(&self, case: Case) -> Option<&'static str> {
        match case {
            Case::UserNamespace => Some(match self.containerd.machine.generation {
                Generation::OfThisMachine => "containerd 1.6 has no user namespaces for pods",
                Generation::Forky | Generation::Resolute => {
                    "a pod with a user namespace needs a network of its own, which takes a CNI plugin"
                }
            }),
            Case::WritableLayer => Some(NO_DIFF),
            Case::NoneOfThem if self.how == How::Cdi => Some(cdi::NO_FILES_ALONE),
            Case::UnknownDevice if self.how == How::Cdi => Some(cdi::ENGINE_REFUSES),
            _ => None,
        }
    }

    fn start(&self, wanted: &ContainerSettings) -> Result<Box<dyn Running + '_>> {
        let pod = Pod {
            number: harness::scratch::number(),
            image: wanted.image,
            devices: wanted.devices.clone(),
            readonly: wanted.readonly,
            user: wanted.user,
            by_cdi: self.how == How::Cdi,
        };
        Ok(Box::new(Container::run_in_pod(self, pod, |_| {})?))
    }
}

/// A container that runs, of a pod of its own.
pub(super) struct Container<'a> {
    engine: &'a Cri,
    pod: Pod,
    sandbox_config: PodSandboxConfig,
    sandbox: String,
    id: Mutex<String>,
    attempt: AtomicU32,
}

impl<'a> Container<'a> {
    /// Runs a container in a new pod. The caller may change what the kubelet asks for.
    pub(super) fn run_in_pod(
        engine: &'a Cri,
        pod: Pod,
        change: impl FnOnce(&mut ContainerConfig),
    ) -> Result<Self> {
        let (sandbox_config, sandbox) = engine.run_pod(&pod)?;
        let container = Self {
            engine,
            pod,
            sandbox_config,
            sandbox,
            id: Mutex::default(),
            attempt: AtomicU32::new(0),
        };
        container.start(change)?;
        Ok(container)
    }

    /// The devices that it has.
    pub(super) fn devices(&self) -> Vec<usize> {
        in_container::devices_by(|asked| self.exec(asked)).unwrap()
    }

    fn start(&self, change: impl FnOnce(&mut ContainerConfig)) -> Result<()> {
        let client = &self.engine.client;
        let attempt = self.attempt.fetch_add(1, Ordering::Relaxed);
        let mut config = self.pod.container(attempt);
        change(&mut config);
        let id = client.create(&self.sandbox, &self.sandbox_config, config)?;
        client.start(&id)?;
        *self.id.lock().unwrap() = id;
        Ok(())
    }

    pub(super) fn id(&self) -> String {
        self.id.lock().unwrap().clone()
    }
}

impl Running for Container<'_> {
    fn exec(&self, args: &[String]) -> Result<String> {
        self.engine.client.exec(&self.id(), args)
    }

    /// As the kubelet does: a new container in the same sandbox.
    fn restart(&self) -> Result<()> {
        self.engine.client.remove(&self.id())?;
        self.start(|_| {})
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.engine.client.remove_sandbox(&self.sandbox) {
            // Called while dropping: there is nobody to return it to.
            eprintln!("{error:#}");
        }
    }
}
