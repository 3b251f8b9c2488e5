//! A container engine as a plugin of the Node Resource Interface sees it, with the
//! rules of the real ones (containerd/nri, `pkg/adaptation`): which plugins are called
//! in which order, what a timeout or a lost connection means, and what may be sent.

mod other;
mod plugin;

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nri_api::{ConfigureRequest, Container, PodSandbox, SynchronizeRequest};

pub use other::OtherPlugin;
pub use plugin::{CallError, Created, Plugin};

/// Longer than a plugin needs to connect again.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub struct FakeEngine {
    listener: UnixListener,
    /// The name and version that it reports.
    pub identity: ConfigureRequest,
    /// Whether it configures a plugin before it answers its registration.
    pub is_hasty: bool,
}

impl FakeEngine {
    /// Listens at `socket`, where another engine may have been.
    pub fn listen(socket: &Path, name: &str, version: &str) -> Result<Self> {
        if socket.exists() {
            std::fs::remove_file(socket)?;
        }
        let listener = UnixListener::bind(socket)?;
        listener.set_nonblocking(true)?;
        let identity = ConfigureRequest {
            runtime_name: name.into(),
            runtime_version: version.into(),
            registration_timeout: 5_000,
            request_timeout: 2_000,
            ..ConfigureRequest::default()
        };
        Ok(Self {
            listener,
            identity,
            is_hasty: false,
        })
    }

    /// Waits for a plugin and does nothing with it.
    pub fn connection(&self) -> Result<Plugin> {
        let start = Instant::now();
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    let limit = u64::try_from(self.identity.request_timeout)?;
                    return Plugin::new(stream, Duration::from_millis(limit));
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    ensure!(start.elapsed() < PATIENCE, "no plugin connects");
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => bail!(error),
            }
        }
    }

    /// Waits for a plugin and refuses its registration; if hasty, as late as possible.
    /// The plugin closes the connection.
    pub fn refused(&self, reason: &str) -> Result<()> {
        let mut plugin = self.connection()?;
        let registration = plugin.registration()?;
        if self.is_hasty {
            plugin.configure(&self.identity)?;
            plugin.synchronize(&SynchronizeRequest::default())?;
        }
        plugin.refuse(registration, reason)?;
        plugin.closed(PATIENCE)
    }

    /// Waits for a plugin, registers and configures it.
    pub fn configured(&self) -> Result<Plugin> {
        let mut plugin = self.connection()?;
        let registration = plugin.registration()?;
        if self.is_hasty {
            plugin.configure(&self.identity)?;
            plugin.accept(registration)?;
        } else {
            plugin.accept(registration)?;
            plugin.configure(&self.identity)?;
        }
        Ok(plugin)
    }

    /// Waits for a plugin and makes it one of the engine's, which has these
    /// containers; they are sent in parts of this many.
    pub fn accepted(
        &self,
        pods: &[PodSandbox],
        containers: &[Container],
        part: usize,
    ) -> Result<Plugin> {
        let mut plugin = self.configured()?;
        let mut parts: Vec<SynchronizeRequest> = containers
            .chunks(part.max(1))
            .map(|part| SynchronizeRequest {
                containers: part.to_vec(),
                more: true,
                ..SynchronizeRequest::default()
            })
            .collect();
        let first = SynchronizeRequest {
            pods: pods.to_vec(),
            more: true,
            ..SynchronizeRequest::default()
        };
        parts.insert(0, first);
        if let Some(last) = parts.last_mut() {
            last.more = false;
        }
        for request in parts {
            let answer = plugin.synchronize(&request).context("Synchronize")?;
            ensure!(
                answer.more == request.more,
                "plugin does not handle split sync requests"
            );
        }
        Ok(plugin)
    }

    /// The same for an engine without containers.
    pub fn plugin(&self) -> Result<Plugin> {
        self.accepted(&[], &[], 1)
    }
}
