//! The pod resources API: the healthy devices that the kubelet has.

use std::sync::Arc;

use kubelet_api::podresources::pod_resources_lister_server::PodResourcesLister;
use kubelet_api::podresources::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, ContainerDevices,
    ListPodResourcesRequest, ListPodResourcesResponse,
};
use tonic::{Request, Response, Status};

use super::manager::Manager;

pub(super) struct PodResources(pub(super) Arc<Manager>);

#[tonic::async_trait]
impl PodResourcesLister for PodResources {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        Err(Status::unimplemented("no test calls it"))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<AllocatableResourcesRequest>,
    ) -> Result<Response<AllocatableResourcesResponse>, Status> {
        let healthy = self.0.healthy().into_iter();
        let devices = healthy.map(|(resource_name, id)| ContainerDevices {
            resource_name,
            device_ids: vec![id],
        });
        Ok(Response::new(AllocatableResourcesResponse {
            devices: devices.collect(),
        }))
    }
}
