//! Implements the kubelet's device plugin API for one resource.

pub(crate) mod allocate;
mod options_refusal;
mod plugin_info;
mod preferred;
mod streams;

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::watch;
use tonic::{Request, Response, Status};

use allocate::build_allocate_responses;
pub(crate) use options_refusal::OptionsRefusal;
pub(crate) use plugin_info::PluginInfoService;
use preferred::choose_devices;
use streams::{DeviceStream, stream_lists};
pub(crate) use streams::{OpenStreamCounts, RegistrationStreams, StreamCount};

use crate::catalog::Resource;
use crate::holders::AllocationReporter;
use crate::metrics::Metrics;
use daemon::kubelet_api::deviceplugin::device_plugin_server::DevicePlugin;
use daemon::kubelet_api::deviceplugin::{
    AllocateRequest, AllocateResponse, ContainerPreferredAllocationResponse, DevicePluginOptions,
    Empty, PreStartContainerRequest, PreStartContainerResponse, PreferredAllocationRequest,
    PreferredAllocationResponse,
};

/// Returns the options of the plugin: the optional calls that the kubelet may make.
pub(crate) fn build_supported_options() -> DevicePluginOptions {
    DevicePluginOptions {
        pre_start_required: false,
        get_preferred_allocation_available: true,
    }
}

/// The gRPC service that answers the kubelet's calls for one resource. Each answer is based on the
/// newest value of the resource's channel.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    /// The channel with the resource. The ListAndWatch streams end when the sender of the channel
    /// is dropped.
    pub(crate) resource: watch::Receiver<Arc<Resource>>,
    pub(crate) stream_count: StreamCount,
    pub(crate) refusal: OptionsRefusal,
    pub(crate) allocation_reporter: AllocationReporter,
    pub(crate) metrics: Metrics,
}

impl Service {
    fn current_resource(&self) -> Arc<Resource> {
        Arc::clone(&self.resource.borrow())
    }
}

#[tonic::async_trait]
impl DevicePlugin for Service {
    type ListAndWatchStream = DeviceStream;

    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        self.refusal.refuse_if_active()?;
        Ok(Response::new(build_supported_options()))
    }

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<DeviceStream>, Status> {
        let lists = stream_lists(self.resource.clone(), self.stream_count.count_stream());
        Ok(Response::new(lists))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let resource = self.current_resource();
        let answers = request
            .into_inner()
            .container_requests
            .into_iter()
            .map(|request| {
                let size = usize::try_from(request.allocation_size).map_err(|_| {
                    Status::invalid_argument(format!(
                        "cannot choose {} devices",
                        request.allocation_size
                    ))
                })?;
                let (available_ids, required_ids) = (
                    request.available_device_i_ds,
                    request.must_include_device_i_ds,
                );
                let device_i_ds = choose_devices(&resource, &available_ids, &required_ids, size)?;
                Ok(ContainerPreferredAllocationResponse { device_i_ds })
            });
        let container_responses = answers.collect::<Result<_, Status>>()?;
        Ok(Response::new(PreferredAllocationResponse {
            container_responses,
        }))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let start_time = Instant::now();
        let resource = self.current_resource();
        let _span = tracing::error_span!("allocation", resource = %resource.name).entered();
        let containers = request.into_inner().container_requests;
        let requested_ids: Vec<&[String]> = containers
            .iter()
            .map(|container| container.devices_ids.as_slice())
            .collect();
        let answers = build_allocate_responses(&resource, &requested_ids);
        self.metrics
            .count_allocation(&resource.name, answers.is_ok(), start_time.elapsed());
        let container_responses = answers.inspect_err(|refusal| {
            tracing::warn!("allocation refused: {}", refusal.message());
        })?;
        for container in &containers {
            self.allocation_reporter
                .report_allocation(&resource.name, &container.devices_ids);
            tracing::debug!(devices = ?container.devices_ids, "allocated");
        }
        Ok(Response::new(AllocateResponse {
            container_responses,
        }))
    }

    async fn pre_start_container(
        &self,
        _: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        Ok(Response::new(PreStartContainerResponse {}))
    }
}
