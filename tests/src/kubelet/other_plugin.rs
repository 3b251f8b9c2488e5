//! A minimal device plugin with fixed answers. Tests use it as the plugin of another vendor,
//! benchmarks as the lower bound of a call's time.

use std::path::Path;
use std::pin::Pin;

use anyhow::Result;
use daemon::kubelet_api::HEALTHY;
use daemon::kubelet_api::deviceplugin::device_plugin_server::{DevicePlugin, DevicePluginServer};
use daemon::kubelet_api::deviceplugin::{
    AllocateRequest, AllocateResponse, CdiDevice, ContainerAllocateResponse, Device,
    DevicePluginOptions, Empty, ListAndWatchResponse, PreStartContainerRequest,
    PreStartContainerResponse, PreferredAllocationRequest, PreferredAllocationResponse,
};
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// The service, which reports the devices `vendor-0`, `vendor-1` and so on.
struct OtherPlugin {
    devices: usize,
    /// The CDI device that each container gets.
    cdi_name: Option<String>,
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl DevicePlugin for OtherPlugin {
    type ListAndWatchStream =
        Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

    async fn get_device_plugin_options(&self, _: Request<Empty>) -> Answer<DevicePluginOptions> {
        Ok(Response::new(Default::default()))
    }

    async fn list_and_watch(&self, _: Request<Empty>) -> Answer<Self::ListAndWatchStream> {
        let device = |number| Device {
            id: format!("vendor-{number}"),
            health: HEALTHY.to_owned(),
            topology: None,
        };
        let list = ListAndWatchResponse {
            devices: (0..self.devices).map(device).collect(),
        };
        let list = tokio_stream::once(Ok(list)).chain(tokio_stream::pending());
        Ok(Response::new(Box::pin(list)))
    }

    async fn get_preferred_allocation(
        &self,
        _: Request<PreferredAllocationRequest>,
    ) -> Answer<PreferredAllocationResponse> {
        Ok(Response::new(Default::default()))
    }

    /// Answers for each container, with nothing or with the CDI device.
    async fn allocate(&self, call: Request<AllocateRequest>) -> Answer<AllocateResponse> {
        let names = self.cdi_name.iter().cloned();
        let response = ContainerAllocateResponse {
            cdi_devices: names.map(|name| CdiDevice { name }).collect(),
            ..Default::default()
        };
        let containers = call.into_inner().container_requests.into_iter();
        let container_responses = containers.map(|_| response.clone()).collect();
        Ok(Response::new(AllocateResponse {
            container_responses,
        }))
    }

    async fn pre_start_container(
        &self,
        _: Request<PreStartContainerRequest>,
    ) -> Answer<PreStartContainerResponse> {
        Ok(Response::new(Default::default()))
    }
}

/// Serves the plugin at `socket` until the returned runtime is dropped.
pub fn serve(socket: &Path) -> Result<Runtime> {
    serve_devices(socket, 1, None)
}

/// Serves a plugin with `devices` devices at `socket` until the returned runtime is dropped. Each
/// container gets the CDI device of this name.
pub fn serve_devices(socket: &Path, devices: usize, cdi_name: Option<String>) -> Result<Runtime> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build()?;
    let context = runtime.enter();
    let listener = UnixListenerStream::new(UnixListener::bind(socket)?);
    drop(context);
    let server =
        Server::builder().add_service(DevicePluginServer::new(OtherPlugin { devices, cdi_name }));
    runtime.spawn(server.serve_with_incoming(listener));
    Ok(runtime)
}
