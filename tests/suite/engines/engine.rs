//! The operations of an engine that the cases need.

use anyhow::Result;
use harness::captured::Captured;
use harness::patience::PATIENCE;
use harness::rootfs::Rootfs;

use super::case::Case;

/// The container to start. It sleeps while other processes examine it.
#[derive(Clone, Debug)]
pub(crate) struct ContainerSettings {
    pub(crate) image: Rootfs,
    /// The value of the demo host's variable.
    pub(crate) devices: Option<String>,
    /// Whether its root file system is read-only.
    pub(crate) readonly: bool,
    /// The user that it runs as, if not root.
    pub(crate) user: Option<u32>,
    /// Whether it has a user namespace of its own.
    pub(crate) user_namespace: bool,
}

impl ContainerSettings {
    /// Root's, which can write to its root.
    pub(crate) fn new(image: Rootfs, devices: Option<&str>) -> Self {
        ContainerSettings {
            image,
            devices: devices.map(str::to_owned),
            readonly: false,
            user: None,
            user_namespace: false,
        }
    }
}

/// The images that an engine must have.
pub(crate) const IMAGES: [Rootfs; 3] = [Rootfs::Busybox, Rootfs::Glibc, Rootfs::GlibcWithoutCache];

/// The container's root in a user namespace is this user of the host.
pub(crate) const MAPPED_ROOT: u32 = 100_000;

/// An engine that runs.
pub(crate) trait Engine: Sync {
    /// Why the engine cannot be tried with a case, if it cannot.
    fn lacks(&self, case: Case) -> Option<&'static str>;

    /// Starts a container. The error has the engine's message.
    fn start(&self, wanted: &ContainerSettings) -> Result<Box<dyn Running + '_>>;
}

/// A container that runs. Removed when dropped.
pub(crate) trait Running {
    /// Runs a command in it.
    fn exec(&self, args: &[String]) -> Result<String>;

    /// Ends it and starts it again.
    fn restart(&self) -> Result<()>;

    /// What is other than in its image, as `docker diff` prints it. Only asked
    /// of an engine that does not lack the case.
    fn changes(&self) -> Result<String> {
        anyhow::bail!("there is no command for that")
    }
}

/// The output of a command of an engine, or an error with its message; one that hangs, as a
/// daemon's client does if the daemon hangs, is killed.
pub(crate) fn printed(command: &mut std::process::Command) -> Result<String> {
    let captured = Captured::run_within(5 * PATIENCE, command)?;
    Ok(captured.success()?.stdout)
}
