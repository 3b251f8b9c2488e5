//! A client of the container runtime interface (CRI, version v1), by which the kubelet calls an
//! engine.

mod pod;
mod record;

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};
use tokio::runtime::{Builder, Runtime};
use tonic::transport::{Channel, Endpoint};

pub use daemon::kubelet_api::cri as api;
pub use pod::Pod;
pub use record::Record;

use api::runtime_service_client::RuntimeServiceClient;
use api::{
    ContainerConfig, CreateContainerRequest, ExecSyncRequest, LinuxContainerResources,
    PodSandboxConfig, RemoveContainerRequest, RemovePodSandboxRequest, RunPodSandboxRequest,
    StartContainerRequest, StopContainerRequest, StopPodSandboxRequest,
    UpdateContainerResourcesRequest, VersionRequest,
};

/// The time limit in seconds of a command in a container.
const EXEC_SECONDS: i64 = 60;

/// A client that is connected to an engine's socket.
#[derive(Debug)]
pub struct CriClient {
    runtime: Runtime,
    channel: Channel,
}

/// Makes one call, and returns the body of the response or an error with the engine's message.
macro_rules! call {
    ($self:ident, $method:ident, $request:expr) => {{
        let mut client = RuntimeServiceClient::new($self.channel.clone());
        let response = $self.runtime.block_on(client.$method($request));
        response
            .map(tonic::Response::into_inner)
            .map_err(|status| anyhow::anyhow!("{}: {}", stringify!($method), status.message()))
    }};
}

impl CriClient {
    /// Connects to the engine at `socket`. Returns an error if no engine answers.
    pub fn connect(socket: &Path) -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let address = Endpoint::from_shared(format!("unix://{}", socket.display()))?;
        let channel = runtime
            .block_on(address.connect())
            .with_context(|| format!("nobody answers at {}", socket.display()))?;
        let client = Self { runtime, channel };
        call!(client, version, VersionRequest::default())?;
        Ok(client)
    }

    /// Starts the sandbox of a pod and returns its id.
    pub fn run_sandbox(&self, config: &PodSandboxConfig, handler: &str) -> Result<String> {
        let request = RunPodSandboxRequest {
            config: Some(config.clone()),
            runtime_handler: handler.to_string(),
        };
        Ok(call!(self, run_pod_sandbox, request)?.pod_sandbox_id)
    }

    /// Creates a container in a sandbox and returns its id.
    pub fn create(
        &self,
        sandbox: &str,
        pod: &PodSandboxConfig,
        config: ContainerConfig,
    ) -> Result<String> {
        let request = CreateContainerRequest {
            pod_sandbox_id: sandbox.to_string(),
            config: Some(config),
            sandbox_config: Some(pod.clone()),
        };
        Ok(call!(self, create_container, request)?.container_id)
    }

    pub fn start(&self, container: &str) -> Result<()> {
        let container_id = container.to_string();
        call!(
            self,
            start_container,
            StartContainerRequest { container_id }
        )
        .map(drop)
    }

    /// Changes the resources of a running container, as the kubelet's CPU manager does.
    pub fn update(&self, container: &str, resources: LinuxContainerResources) -> Result<()> {
        let request = UpdateContainerResourcesRequest {
            container_id: container.to_string(),
            linux: Some(resources),
        };
        call!(self, update_container_resources, request).map(drop)
    }

    /// Runs a command in a container and returns its output.
    pub fn exec(&self, container: &str, command: &[String]) -> Result<String> {
        let request = ExecSyncRequest {
            container_id: container.to_string(),
            cmd: command.to_vec(),
            timeout: EXEC_SECONDS,
        };
        let response = call!(self, exec_sync, request)?;
        let mut said = String::from_utf8_lossy(&response.stdout).into_owned();
        if response.exit_code != 0 {
            let _ = write!(said, "{}", String::from_utf8_lossy(&response.stderr));
            bail!("{command:?} failed ({}): {said}", response.exit_code);
        }
        Ok(said)
    }

    /// Kills a container and removes it.
    pub fn remove(&self, container: &str) -> Result<()> {
        let container_id = container.to_string();
        let stop = StopContainerRequest {
            container_id: container_id.clone(),
            timeout: 0,
        };
        call!(self, stop_container, stop)?;
        call!(
            self,
            remove_container,
            RemoveContainerRequest { container_id }
        )
        .map(drop)
    }

    /// Stops a sandbox with its containers, and removes it.
    pub fn remove_sandbox(&self, sandbox: &str) -> Result<()> {
        let pod_sandbox_id = sandbox.to_string();
        let stop = StopPodSandboxRequest {
            pod_sandbox_id: pod_sandbox_id.clone(),
        };
        call!(self, stop_pod_sandbox, stop)?;
        call!(
            self,
            remove_pod_sandbox,
            RemovePodSandboxRequest { pod_sandbox_id }
        )
        .map(drop)
    }
}
