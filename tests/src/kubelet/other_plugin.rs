//! A device plugin that only answers: that of another vendor, or the floor of what a call
//! costs.

use std::path::Path;
use std::pin::Pin;

use anyhow::Result;
use kubelet_api::HEALTHY;
use kubelet_api::deviceplugin::device_plugin_server::{DevicePlugin, DevicePluginServer};
use kubelet_api::deviceplugin::{
    AllocateRequest, AllocateResponse, Device, DevicePluginOptions, Empty, ListAndWatchResponse,
    PreStartContainerRequest, PreStartContainerResponse, PreferredAllocationRequest,
    PreferredAllocationResponse,
};
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// Has one device, `vendor-0`.
struct OtherPlugin;

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl DevicePlugin for OtherPlugin {
    type ListAndWatchStream =
        Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

    async fn get_device_plugin_options(&self, _: Request<Empty>) -> Answer<DevicePluginOptions> {
        Ok(Response::new(Default::default()))
    }

    async fn list_and_watch(&self, _: Request<Empty>) -> Answer<Self::ListAndWatchStream> {
        let device = Device {
            id: "vendor-0".to_owned(),
            health: HEALTHY.to_owned(),
            topology: None,
        };
        let list = ListAndWatchResponse {
            devices: vec![device],
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

    async fn allocate(&self, _: Request<AllocateRequest>) -> Answer<AllocateResponse> {
        Ok(Response::new(Default::default()))
    }

    async fn pre_start_container(
        &self,
        _: Request<PreStartContainerRequest>,
    ) -> Answer<PreStartContainerResponse> {
        Ok(Response::new(Default::default()))
    }
}

/// Serves it at a socket as long as the runtime is there, which has a thread of its own.
pub fn serve(socket: &Path) -> Result<Runtime> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build()?;
    let context = runtime.enter();
    let listener = UnixListenerStream::new(UnixListener::bind(socket)?);
    drop(context);
    let server = Server::builder().add_service(DevicePluginServer::new(OtherPlugin));
    runtime.spawn(server.serve_with_incoming(listener));
    Ok(runtime)
}
