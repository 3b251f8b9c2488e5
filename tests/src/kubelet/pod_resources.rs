//! The kubelet's pod resources API, which lists the healthy devices and the devices of pods.

use std::sync::Arc;

use daemon::kubelet_api::podresources::pod_resources_lister_server::PodResourcesLister;
use daemon::kubelet_api::podresources::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, ContainerDevices,
    ContainerResources, ListPodResourcesRequest, ListPodResourcesResponse, PodResources,
};
use tonic::{Request, Response, Status};

use super::manager::Manager;

pub(super) struct PodResourcesService(pub(super) Arc<Manager>);

#[tonic::async_trait]
impl PodResourcesLister for PodResourcesService {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        let pods = self.0.list_pods().into_iter();
        let pods = pods.map(|(uid, container, devices)| PodResources {
            name: format!("pod-{uid}"),
            namespace: "default".to_owned(),
            containers: vec![ContainerResources {
                name: container,
                devices,
                ..ContainerResources::default()
            }],
        });
        Ok(Response::new(ListPodResourcesResponse {
            pod_resources: pods.collect(),
        }))
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
