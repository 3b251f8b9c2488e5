//! A device plugin that only answers: the time that gRPC over a Unix socket
//! costs by itself.

use anyhow::Result;
use kubelet_api::deviceplugin::device_plugin_server::{DevicePlugin, DevicePluginServer};
use kubelet_api::deviceplugin::{
    AllocateRequest, AllocateResponse, DevicePluginOptions, Empty, ListAndWatchResponse,
    PreStartContainerRequest, PreStartContainerResponse, PreferredAllocationRequest,
    PreferredAllocationResponse,
};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::calls::{self, Latency};

struct Echo;

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl DevicePlugin for Echo {
    type ListAndWatchStream = tokio_stream::Empty<Result<ListAndWatchResponse, Status>>;

    async fn get_device_plugin_options(&self, _: Request<Empty>) -> Answer<DevicePluginOptions> {
        Ok(Response::new(Default::default()))
    }

    async fn list_and_watch(&self, _: Request<Empty>) -> Answer<Self::ListAndWatchStream> {
        Ok(Response::new(tokio_stream::empty()))
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

/// The latency of a service in its own thread.
pub(crate) fn latency(calls: usize) -> Result<Latency> {
    let directory = tempfile::tempdir()?;
    let socket = directory.path().join("echo.sock");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let listener = {
        let _context = runtime.enter();
        UnixListener::bind(&socket)?
    };
    // Ends with the process.
    std::thread::spawn(move || {
        let incoming = UnixListenerStream::new(listener);
        let service = DevicePluginServer::new(Echo);
        runtime.block_on(Server::builder().serve_with_incoming(service, incoming))
    });
    calls::allocate(&socket, calls)
}
